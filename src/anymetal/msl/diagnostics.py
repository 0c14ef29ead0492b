"""clang's messages -> messages about the author's text, as clang would word them there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from anymetal.errors import KernelSyntaxError, UnsupportedError
from anymetal.msl import clang
from anymetal.msl.source_map import Origins
from anymetal.msl.spelling import metal_spelling
from anymetal.nouns import Position, Source

_MESSAGE = re.compile(r"(.+?):(\d+):(\d+): (fatal error|error|warning|note): (.*)")
_THREADGROUP_TYPE = re.compile(r"'am_type_\d+' \(aka '([^']*)'\)")
# What a swizzle gives has a name in our headers, and its type behind that.
_SWIZZLE_TYPE = re.compile(r"'[^']*\bam_\d_letters\b[^']*' \(aka ('[^']*')\)")
_REPEATED_LETTERS = "am_set_repeated_"
_INTERNAL_NAME = re.compile(r"\bam_(?:word_)?(\w+)")
_INTO_BFLOAT = re.compile(
    r"implicit conversion .*: '(?:const |volatile )*(\w+)'(?: \(aka '[\w ]*'\))?"
    r" to '(?:[\w ]+' \(aka ')?(?:const |volatile )*__bf16'"
)
# Notes that explain our headers, not the author's mistake.
_OURS_ALONE = re.compile(r"\bam_\w+|\bAM_|^expanded from |^because |^and |implicit (?:copy|move)")
_MOST_NOTES = 3  # of those that stand in our headers, for one error
_SAME_TWICE = re.compile(r"'([^']*)' \(aka '\1'\)")

Place = Callable[[int, int], "Position | None"]
Excerpt = Callable[["Position"], "str | None"]


@dataclass(frozen=True)
class Message:
    """One message of the compiler, at a place of its input or of a header."""

    file: str
    line: int
    column: int
    severity: str
    text: str


@dataclass(frozen=True)
class Problem:
    """One message about the author's text."""

    position: Position | None
    severity: str
    text: str
    brief: bool = False  # the line has just been shown


def parse_messages(output: str) -> list[Message]:
    messages = []
    for line in output.splitlines():
        match = _MESSAGE.fullmatch(line)
        if match is not None:
            severity = "error" if match[4] == "fatal error" else match[4]
            text = _SWIZZLE_TYPE.sub(r"\1", match[5])
            messages.append(Message(match[1], int(match[2]), int(match[3]), severity, text))
    return messages


def raise_problems(
    problems: list[Problem],
    excerpt: Excerpt,
    kind: type[KernelSyntaxError] = KernelSyntaxError,
) -> NoReturn:
    """Raises one error that lists all problems, each with its line and a caret."""
    errors = sum(problem.severity == "error" for problem in problems)
    text = "\n".join(render(problem, excerpt) for problem in problems)
    raise kind(f"{text}\n{errors} error{'s' if errors != 1 else ''} generated.")


def render(problem: Problem, excerpt: Excerpt) -> str:
    """As clang prints it: the place, the message, the line and a caret."""
    if problem.position is None:
        return f"{problem.severity}: {problem.text}"
    place = problem.position
    head = f"{place.file}:{place.line}:{place.column}: {problem.severity}: {problem.text}"
    line = None if problem.brief else excerpt(place)
    if line is None:
        return head
    indent = re.sub(r"[^\t]", " ", line[: place.column - 1])
    return f"{head}\n{line}\n{indent}^"


def raise_preprocessor_errors(output: str, source: Source) -> NoReturn:
    """clang -E read the author's own files: its places are right as they are."""
    origins = Origins(files={source.name: source.text})
    problems = []
    for m in parse_messages(output):
        position = Position(m.file, m.line, m.column)
        if m.text.startswith("#embed "):  # a warning to clang
            problems.append(Problem(position, "error", "'#embed' is not supported in Metal"))
        elif m.severity != "warning":
            problems.append(Problem(position, m.severity, m.text))
    problems = problems or [Problem(None, "error", output.strip())]
    unsupported = all(p.severity != "error" or "anymetal" in p.text for p in problems)
    kind = UnsupportedError if unsupported else KernelSyntaxError
    raise_problems(problems, origins.excerpt, kind)


def raise_compiler_errors(output: str, place: Place, excerpt: Excerpt) -> NoReturn:
    """Raises what clang said about the rewritten text, in terms of the author's text.

    `place` gives the author's position for a line and column of the compiler's input.
    """
    problems: list[Problem] = []
    messages = [message for message in parse_messages(output) if message.severity != "warning"]
    for group in groups_of(messages):
        problems += _translate(group, place)
    if not any(problem.severity == "error" for problem in problems):
        problems.append(Problem(None, "error", clean(output.strip())))
    raise_problems(list(dict.fromkeys(problems)), excerpt)


def refused_conversions(output: str, place: Place) -> list[Problem]:
    """Where a float silently becomes a bfloat, in the author's own text; in Apple's words."""
    found: dict[Problem, None] = {}
    for message in parse_messages(output):
        conversion = _INTO_BFLOAT.search(message.text)
        if message.file != clang.INPUT_NAME or message.severity != "warning" or not conversion:
            continue
        position = place(message.line, message.column)
        if position is not None:
            text = f"assigning to 'bfloat' from incompatible type '{conversion[1]}'"
            found[Problem(position, "error", text)] = None
            found[Problem(position, "note", _CAST, brief=True)] = None
    return list(found)


def compiler_warnings(output: str, place: Place, excerpt: Excerpt) -> tuple[str, ...]:
    """clang's own warnings about the author's text, with the notes that say what to do."""
    problems: list[Problem] = []
    for group in groups_of(parse_messages(output)):
        first = group[0]
        if first.severity == "warning" and first.file == clang.INPUT_NAME:
            problems += _translate(group, place)
    return tuple(dict.fromkeys(render(problem, excerpt) for problem in problems))


_CAST = "Metal rounds to bfloat only when asked: write bfloat(x) or static_cast<bfloat>(x)"


def groups_of(messages: list[Message]) -> list[list[Message]]:
    """Each error with the notes that follow it."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.severity != "note" or not groups:
            groups.append([])
        groups[-1].append(message)
    return groups


def _translate(group: list[Message], place: Place) -> list[Problem]:
    """An error inside our headers belongs to the author's line that led there."""
    places = [
        place(message.line, message.column) if message.file == clang.INPUT_NAME else None
        for message in group
    ]
    anchor = next((position for position in places if position is not None), None)
    problems = []
    notes_left = _MOST_NOTES
    for message, position in zip(group, places, strict=True):
        text = message.text
        in_header = message.file != clang.INPUT_NAME
        if message.severity == "note" and position is None:
            if in_header and notes_left > 0 and not _OURS_ALONE.search(text):
                problems.append(Problem(anchor, "note", clean(text), brief=True))
                notes_left -= 1
            continue
        if message.severity == "note" and _INTERNAL_NAME.search(text):
            continue
        if anchor is None and in_header:
            text = f"{text} (in {message.file})"
        problems.append(Problem(position or anchor, message.severity, clean(text)))
    return problems


def clean(text: str) -> str:
    """No internal names in what the author reads."""
    if "am_kernel_" in text:
        return "no kernel matches this instantiation"
    if _REPEATED_LETTERS in text:
        return "vector is not assignable (contains duplicate components)"
    if "variable length arrays" in text:
        return "variable length arrays are not supported in Metal"
    text = _THREADGROUP_TYPE.sub(r"'threadgroup \1'", text)
    text = metal_spelling(_INTERNAL_NAME.sub(r"\1", text))
    return _SAME_TWICE.sub(r"'\1'", text)
