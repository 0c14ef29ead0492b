"""The findings of one launch without those that only follow from another of them."""

from __future__ import annotations

from collections.abc import Sequence

from anymetal.checker.finding import Finding
from anymetal.nouns import Position


def settled(findings: Sequence[Finding]) -> list[Finding]:
    """A race comes before the uninitialised reads at its places, and stands for them: the value was
    not there because nothing waits for it. Two reports of a race at the same lines are one."""
    races = [finding for finding in findings if finding.kind == "race"]
    kept = [finding for finding in findings if not any(_follows(finding, r) for r in races)]
    return sorted(kept, key=lambda finding: bool(races) and finding.kind == "uninitialised")


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
