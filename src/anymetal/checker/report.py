"""Findings and launches go in, one by one and from any thread; equal findings come out once."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from anymetal.checker import silence
from anymetal.checker.finding import Finding, Place, Severity
from anymetal.checker.kinds import KINDS, hint_for
from anymetal.checker.silence import Excerpts

Level = Literal["error", "warning", "off"]
Severities = Mapping[str, Level]

# Numbers say which of many equal defects was seen first; they do not make another defect.
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|-?\d+")

# The last kernel launched under any check of this process; a test may have checks of its own.
_launched: deque[str] = deque(maxlen=1)


def forget_launches() -> None:
    """From now on `any_launched` is about what follows."""
    _launched.clear()


def any_launched() -> bool:
    """Whether a kernel was launched under a check, whichever it was."""
    return bool(_launched)


class Report:
    """What a check found: iterate it, or take `errors` and `warnings`. Empty, it is false.

    `severity` changes what a kind of finding counts as: `{"uninitialised": "error", "nan": "off"}`.
    `listener` hears of each new finding as it is added; folded ones are not repeated.
    """

    def __init__(
        self,
        severity: Severities | None = None,
        listener: Callable[[Finding], None] | None = None,
    ) -> None:
        self._severity = checked_severities(severity)
        self._listener = listener
        self._lock = threading.Lock()
        self._findings: dict[Hashable, Finding] = {}
        self._silenced: dict[Hashable, tuple[Finding, str]] = {}
        self._launches: dict[str, int] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found and is not silenced, in the order it was first seen."""
        with self._lock:
            return tuple(self._findings.values())

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    @property
    def silenced(self) -> tuple[tuple[Finding, str], ...]:
        """Findings that a comment in the source accepts, each with the reason it gives."""
        with self._lock:
            return tuple(self._silenced.values())

    @property
    def launches(self) -> dict[str, int]:
        """How often each kernel was launched."""
        with self._lock:
            return dict(self._launches)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that ran, in the order of their first launch."""
        return tuple(self.launches)

    def failed(self, strict: bool = False) -> bool:
        """Whether there is an error; with `strict`, whether there is any finding."""
        return bool(self.findings if strict else self.errors)

    def launch(self, kernel: str, times: int = 1) -> int:
        """Count a launch of a kernel; returns how many there are by now, of all kernels."""
        _launched.append(kernel)
        with self._lock:
            self._launches[kernel] = self._launches.get(kernel, 0) + times
            return sum(self._launches.values())

    def add(self, finding: Finding, excerpts: Excerpts | None = None) -> None:
        """Take in one finding, unless its kind is off or a comment in the source silences it.

        `excerpts` gives the author's lines as they were compiled; comments are looked up there.
        """
        level = self._severity.get(finding.kind, finding.severity)
        if level == "off":
            return
        hint = finding.hint or hint_for(finding)
        finding = replace(finding, severity=level, hint=hint, scene=None)
        verdict = silence.judge(finding, excerpts)
        for complaint in verdict.complaints:
            self._complain(complaint)
        if verdict.reason is None:
            self.add_as_is(finding)
        else:
            self.add_silenced(finding, verdict.reason)

    def add_as_is(self, finding: Finding) -> None:
        """Take in a finding that has been through `add` before, here or in another process."""
        key = _key(finding)
        with self._lock:
            before = self._findings.get(key)
            self._findings[key] = _folded(before, finding) if before else finding
            worse = before is not None and before.severity != self._findings[key].severity
        if self._listener and (before is None or worse):
            self._listener(finding)

    def add_silenced(self, finding: Finding, reason: str) -> None:
        """Count a finding that its author accepts."""
        key = _key(finding)
        with self._lock:
            before = self._silenced.get(key)
            self._silenced[key] = (_folded(before[0], finding) if before else finding, reason)

    def merge(self, other: Report) -> None:
        """Take in another report: findings fold with the ones here, launches add up."""
        for finding in other.findings:
            self.add_as_is(finding)
        for finding, reason in other.silenced:
            self.add_silenced(finding, reason)
        for kernel, times in other.launches.items():
            self.launch(kernel, times)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        with self._lock:
            return len(self._findings)

    def __str__(self) -> str:
        from anymetal.checker.terminal import plain_report  # noqa: PLC0415  (it imports this file)

        return plain_report(self)

    def __repr__(self) -> str:
        return (
            f"<anymetal report: {sum(self.launches.values())} launches,"
            f" {len(self.errors)} errors, {len(self.warnings)} warnings>"
        )

    def _complain(self, complaint: Finding) -> None:
        level = self._severity.get(complaint.kind, complaint.severity)
        if level != "off":
            self.add_as_is(replace(complaint, severity=level, hint=hint_for(complaint)))


def checked_severities(severity: Severities | None) -> Severities:
    """The same, or ValueError for a kind or a level that does not exist."""
    if severity is not None and not isinstance(severity, Mapping):
        raise TypeError(f"severity is {severity!r}, expected levels by kinds: {{'race': 'off'}}")
    severity = dict(severity or {})
    for kind, level in severity.items():
        if kind not in KINDS:
            raise ValueError(f"severity: no kind {kind!r}; known are {', '.join(KINDS)}")
        if level not in ("error", "warning", "off"):
            raise ValueError(f"severity[{kind!r}] is {level!r}: expected error, warning or off")
    return severity


def _folded(before: Finding, finding: Finding) -> Finding:
    """Two sightings of one defect: the first is shown, unless the second is the worse one."""
    if finding.kind == "silence":
        return before  # one comment, however often the line it stands at is reached
    shown = finding if _worse(finding.severity, before.severity) else before
    return replace(shown, count=before.count + finding.count)


def _worse(one: Severity, other: Severity) -> bool:
    return one == "error" and other == "warning"


def _key(finding: Finding) -> Hashable:
    """Equal for equal defects: same kernel and lines, whichever thread and element it was."""
    places = (_place_key(finding.place), _place_key(finding.other))
    about = (finding.kind, finding.kernel, finding.buffer)
    if finding.kind == "race":
        # Either access may come first. Writing the same value is a warning and another value an
        # error, but it is one defect.
        return (*about, frozenset(places))
    return (*about, places, finding.severity, _NUMBER.sub("#", finding.message))


def _place_key(place: Place | None) -> Hashable:
    return (place.position, place.access) if place else None
