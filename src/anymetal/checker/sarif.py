"""A report becomes SARIF 2.1.0, which code scanning takes as an upload.

Each kind of finding is a rule. A finding that a comment silences is a result with a suppression and
the comment's reason, so that the platform shows it as dismissed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from anymetal.checker.finding import Finding, Place
from anymetal.checker.json_report import package_version
from anymetal.checker.kinds import KINDS, ROWS, Kind
from anymetal.checker.paths import machine_position, uri_reference
from anymetal.checker.report import Report
from anymetal.checker.terminal import where, who
from anymetal.nouns import Position

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_text(report: Report) -> str:
    """The file that `--sarif` writes."""
    return json.dumps(sarif_data(report), indent=2) + "\n"


def sarif_data(report: Report) -> dict[str, Any]:
    """The log: one run, with all kinds as rules."""
    results = [_result(finding) for finding in report.findings]
    for finding, reason in report.silenced:
        suppression = {"kind": "inSource", "status": "accepted", "justification": reason}
        results.append({**_result(finding), "suppressions": [suppression]})
    return sarif_log([_rule(row) for row in ROWS], results)


def sarif_log(rules: list[dict[str, Any]], results: list[dict[str, Any]]) -> dict[str, Any]:
    """A log of one run of this package."""
    driver = {"name": "anymetal", "version": package_version(), "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: Kind) -> dict[str, Any]:
    return {
        "id": kind.name,
        "name": kind.rule_name,
        "shortDescription": {"text": kind.title},
        "defaultConfiguration": {"level": kind.severity},
        "properties": {"tags": ["metal", "gpu", "correctness"]},
    }


def _result(finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": KINDS.index(finding.kind),
        "level": finding.severity,
        "message": {"text": _message(finding)},
        "locations": [_location(finding, finding.place)],
        "occurrenceCount": max(1, finding.count),
        "partialFingerprints": {"anymetalDefect/v1": _fingerprint(finding)},
        "properties": _properties(finding),
    }
    if finding.other:
        described = f"{finding.other.access}, {who(finding.other)}".strip(", ")
        related = {**_location(finding, finding.other), "id": 1}
        result["relatedLocations"] = [{**related, "message": {"text": described}}]
    if finding.launch and finding.launch.caller:
        physical = physical_location(finding.launch.caller)
        launch = {"physicalLocation": physical, "message": {"text": "launched here"}}
        result.setdefault("relatedLocations", []).append({**launch, "id": 2})
    return result


def _message(finding: Finding) -> str:
    """What it is, both places and the fix; `[...](1)` links to the other place."""
    lines = [f"{finding.kernel}: {finding.message}"]
    for place, linked in ((finding.other, True), (finding.place, False)):
        if place and (place.position or who(place)):
            at = f"[{where(place)}](1)" if linked else where(place)
            lines.append(" ".join(f"{place.access} {who(place)} {at}".split()))
    return "\n".join([*lines, finding.hint]).rstrip()


def _location(finding: Finding, place: Place) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"name": finding.kernel, "kind": "function"}]}
    position = machine_position(place.position, finding.launch)
    if position:
        quoted = place.excerpt.strip() if position == place.position else ""
        location["physicalLocation"] = physical_location(position, quoted)
    return location


def physical_location(position: Position, quoted: str = "") -> dict[str, Any]:
    """A place in a file, with its text."""
    region: dict[str, Any] = {
        "startLine": max(1, position.line),
        "startColumn": max(1, position.column),
    }
    if quoted:
        region["snippet"] = {"text": quoted}
    return {"artifactLocation": {"uri": uri_reference(position.file)}, "region": region}


def _properties(finding: Finding) -> dict[str, Any]:
    known = {
        "kernel": finding.kernel,
        "buffer": finding.buffer,
        "space": finding.space,
        "index": finding.index,
        "thread": finding.thread and list(finding.thread),
        "threadgroup": finding.threadgroup and list(finding.threadgroup),
        "lane": finding.lane,
        "launch": finding.launch and finding.launch.number,
        "test": finding.launch and finding.launch.test,
    }
    return {name: value for name, value in known.items() if value is not None}


def _fingerprint(finding: Finding) -> str:
    """Stays the same when lines are added above: made of the source text, not its place."""
    places = [place for place in (finding.place, finding.other) if place]
    parts = [finding.kind, finding.kernel, finding.buffer or ""]
    for place in places:
        file = uri_reference(place.position.file) if place.position else ""
        parts += [file, place.access, " ".join(place.excerpt.split())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
