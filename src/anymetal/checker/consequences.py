"""The findings of one launch without those that only follow from another of them."""

from __future__ import annotations

from collections.abc import Sequence

from anymetal.checker.finding import Finding
from anymetal.nouns import Position


def settled(findings: Sequence[Finding]) -> list[Finding]:
    """A race comes before the uninitialised reads at its places, and stands for them: the value was
    not there because nothing waits for it. Two reports of a race at the same lines are one, and so
    are two of a division by zero that somebody uses."""
    races = [finding for finding in findings if finding.kind == "race"]
    divided = {f.place.position for f in findings if _is_error(f, "arithmetic")}
    kept = [
        finding
        for finding in findings
        if not any(_follows(finding, race) for race in races)
        and not (_is_warning(finding, "arithmetic") and finding.place.position in divided)
    ]
    return sorted(kept, key=lambda finding: bool(races) and finding.kind == "uninitialised")


def _is_error(finding: Finding, kind: str) -> bool:
    return (finding.kind, finding.severity) == (kind, "error")


def _is_warning(finding: Finding, kind: str) -> bool:
    return (finding.kind, finding.severity) == (kind, "warning")


def _follows(finding: Finding, race: Finding) -> bool:
    if finding is race or finding.buffer != race.buffer:
        return False
    if finding.kind == "uninitialised":
        return finding.place.position in _places(race)
    weaker = finding.severity == "warning" and race.severity == "error"
    return finding.kind == "race" and weaker and _places(finding) <= _places(race)


def _places(finding: Finding) -> set[Position | None]:
    places = (finding.place, finding.other)
    return {place.position for place in places if place} - {None}
