"""Findings become workflow commands, which GitHub shows beside the line in a pull request."""

from __future__ import annotations

import os

from anymetal.checker.finding import Finding
from anymetal.checker.paths import machine_position, repository_path
from anymetal.checker.report import Report
from anymetal.checker.terminal import plain_finding
from anymetal.nouns import Position


def wanted() -> bool:
    """Whether this process runs in a GitHub workflow."""
    return os.environ.get("GITHUB_ACTIONS", "") not in ("", "0", "false")


def annotation_lines(report: Report) -> list[str]:
    """One command a finding. Errors first: GitHub shows only the first ten of each step."""
    return [annotation(finding) for finding in (*report.errors, *report.warnings)]


def annotation(finding: Finding) -> str:
    """`::error file=...,line=...,col=...,title=...::message`."""
    position = machine_position(finding.place.position, finding.launch)
    title = f"{finding.kind} in {finding.kernel}"
    return command(finding.severity, position, title, plain_finding(finding))


def command(level: str, position: Position | None, title: str, message: str) -> str:
    """One workflow command, with everything escaped that has a meaning there."""
    properties = {"title": title}
    if position:
        properties = {
            "file": repository_path(position.file),
            "line": str(position.line),
            "col": str(position.column),
            **properties,
        }
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {listed}::{_message(message)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
