"""A report becomes plain data for JSON, and comes back: workers send theirs to one process."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from anymetal.checker.finding import Finding, Launched, Place, Triple
from anymetal.checker.report import Report
from anymetal.nouns import Position

FORMAT = 1


def json_text(report: Report) -> str:
    """The file that `--json` writes."""
    return json.dumps(report_data(report), indent=2) + "\n"


def report_data(report: Report) -> dict[str, Any]:
    """A report as dicts, lists, strings and numbers."""
    return {
        "format": FORMAT,
        "anymetal": package_version(),
        "summary": {
            "kernels": len(report.kernels),
            "launches": sum(report.launches.values()),
            "errors": len(report.errors),
            "warnings": len(report.warnings),
            "silenced": len(report.silenced),
        },
        "launches": report.launches,
        "findings": [finding_data(finding) for finding in report.findings],
        "silenced": [
            {**finding_data(finding), "reason": reason} for finding, reason in report.silenced
        ],
    }


def report_from(data: dict[str, Any]) -> Report:
    """The report that `report_data` was given."""
    if data.get("format") != FORMAT:
        raise ValueError(f"report has format {data.get('format')!r}, expected {FORMAT}")
    report = Report()
    for kernel, times in data["launches"].items():
        report.launch(kernel, times)
    for entry in data["findings"]:
        report.add_as_is(finding_from(entry))
    for entry in data["silenced"]:
        report.add_silenced(finding_from(entry), entry["reason"])
    return report


def finding_data(finding: Finding) -> dict[str, Any]:
    """One finding; the place that completes it is spread out, the other one is nested."""
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "kernel": finding.kernel,
        "message": finding.message,
        **_place_data(finding.place),
        "other": _place_data(finding.other) if finding.other else None,
        "buffer": finding.buffer,
        "space": finding.space,
        "index": finding.index,
        "count": finding.count,
        "hint": finding.hint,
        "launch": _launch_data(finding.launch) if finding.launch else None,
    }


def finding_from(data: dict[str, Any]) -> Finding:
    """The finding that `finding_data` was given."""
    return Finding(
        kind=data["kind"],
        severity=data["severity"],
        kernel=data["kernel"],
        message=data["message"],
        place=_place_from(data),
        other=_place_from(data["other"]) if data["other"] else None,
        buffer=data["buffer"],
        space=data["space"],
        index=data["index"],
        count=data["count"],
        hint=data["hint"],
        launch=_launch_from(data["launch"]) if data["launch"] else None,
    )


def package_version() -> str:
    """The version of the installed package."""
    try:
        return version("anymetal")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"


def _place_data(place: Place) -> dict[str, Any]:
    return {
        "file": place.position.file if place.position else None,
        "line": place.line,
        "column": place.column,
        "excerpt": place.excerpt,
        "access": place.access,
        "thread": _listed(place.thread),
        "threadgroup": _listed(place.threadgroup),
        "lane": place.lane,
    }


def _place_from(data: dict[str, Any]) -> Place:
    position = None
    if data["file"] is not None:
        position = Position(data["file"], data["line"], data["column"])
    return Place(
        position=position,
        excerpt=data["excerpt"],
        access=data["access"],
        thread=_triple(data["thread"]),
        threadgroup=_triple(data["threadgroup"]),
        lane=data["lane"],
    )


def _launch_data(launch: Launched) -> dict[str, Any]:
    return {
        "number": launch.number,
        "test": launch.test,
        "caller": asdict(launch.caller) if launch.caller else None,
        "source": asdict(launch.source) if launch.source else None,
    }


def _launch_from(data: dict[str, Any]) -> Launched:
    positions = (Position(**data[name]) if data[name] else None for name in ("caller", "source"))
    caller, source = positions
    return Launched(data["number"], caller, data["test"], source)


def _listed(triple: Triple | None) -> list[int] | None:
    return None if triple is None else list(triple)


def _triple(listed: list[int] | None) -> Triple | None:
    return None if listed is None else (listed[0], listed[1], listed[2])
