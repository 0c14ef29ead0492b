"""A finding goes in; out comes the author's reason to accept it, if a comment at its line has one.

    // anymetal: allow(race) every thread writes the same flag
    found[0] = 1;

The comment stands on the line itself or directly above it, names one or more kinds, and gives a
reason. Without a reason it silences nothing and is reported itself, so that nobody is left
wondering why a defect that looks silenced is still there, or why it was silenced.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from anymetal.checker.finding import Finding, Place
from anymetal.checker.kinds import KINDS
from anymetal.nouns import Position

Excerpts = Callable[[Position], "str | None"]
"""The author's line at a position; `SourceMap.excerpt` and `CheckedProgram.comment` are such."""

_ALLOW = re.compile(
    r"(?://|/\*)[\s/*!]*anymetal:\s*allow\b\s*(?:\((?P<kinds>[^)]*)\))?(?P<reason>.*)"
)
_LETTER = re.compile(r"[^\W\d_]")
_MOST_LINES_ABOVE = 20


@dataclass(frozen=True)
class Verdict:
    """The reason a finding is silenced for, or None; and what is wrong with comments that try."""

    reason: str | None = None
    complaints: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _Comment:
    """One `anymetal: allow(...)` comment."""

    position: Position
    text: str
    kinds: tuple[str, ...]
    reason: str


def judge(finding: Finding, excerpts: Excerpts | None = None) -> Verdict:
    """Look for a comment that silences this finding, at either of its places.

    `excerpts` knows the source as it was compiled. Without it the line above is read from the file,
    provided the file still holds the line that the finding quotes.
    """
    complaints: list[Finding] = []
    for place in (finding.place, finding.other):
        for comment in _comments(place, excerpts) if place else ():
            fault = _fault(comment)
            if fault:
                complaints.append(_complaint(finding, comment, fault))
            elif finding.kind in comment.kinds:
                return Verdict(comment.reason)
    return Verdict(None, tuple(complaints))


def _comments(place: Place, excerpts: Excerpts | None) -> Iterator[_Comment]:
    """The allow comments that stand at a place: on its line, or in the comment lines above it."""
    position = place.position
    if position is None:
        return
    own = _parse(position, place.excerpt)
    if own:
        yield own
    for above, text in comments_above(position, excerpts or _from_file(place)):
        comment = _parse(above, text)
        if comment:
            yield comment


def comments_above(position: Position, excerpts: Excerpts) -> Iterator[tuple[Position, str]]:
    """The comment lines directly above a position, from the nearest on."""
    for line in range(position.line - 1, max(0, position.line - 1 - _MOST_LINES_ABOVE), -1):
        above = replace(position, line=line)
        text = excerpts(above)
        if text is None or not _is_comment(text):
            return
        yield above, text


def _is_comment(text: str) -> bool:
    """Whether a line holds a comment and no code, as far as one line can tell."""
    stripped = text.strip()
    return stripped.startswith(("//", "/*", "* ", "*/"))


def _parse(position: Position, text: str) -> _Comment | None:
    match = _ALLOW.search(text)
    if match is None:
        return None
    kinds = tuple(kind.strip() for kind in (match["kinds"] or "").split(",") if kind.strip())
    reason = match["reason"].split("*/")[0].strip(" \t\r:;,.-–—")
    return _Comment(replace(position, column=match.start() + 1), text, kinds, reason)


def _fault(comment: _Comment) -> str | None:
    """Why a comment silences nothing, whatever the finding is."""
    if not comment.kinds:
        return "names no kind; write `anymetal: allow(kind) reason`"
    unknown = [kind for kind in comment.kinds if kind not in KINDS]
    if unknown:
        return f"names the unknown kind {unknown[0]!r}; known are {', '.join(KINDS)}"
    if not _LETTER.search(comment.reason):
        return "gives no reason; write one behind the bracket"
    return None


def _complaint(finding: Finding, comment: _Comment, fault: str) -> Finding:
    place = Place(comment.position, comment.text, "comment", None, None, None)
    message = f"this comment silences nothing: it {fault}"
    return Finding("silence", "warning", finding.kernel, message, place)


def _from_file(place: Place) -> Excerpts:
    """Lines of the file a place names, if it is on disk and is what was compiled."""

    def line_at(position: Position) -> str | None:
        return linecache.getline(position.file, position.line) or None

    quoted = line_at(place.position) if place.position else None
    if quoted is None or quoted.strip() != place.excerpt.strip():
        return lambda position: None
    return line_at
