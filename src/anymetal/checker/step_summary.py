"""A report becomes a Markdown table, which GitHub shows on the page of a workflow's run."""

from __future__ import annotations

import os
from pathlib import Path

from anymetal.checker.finding import Finding
from anymetal.checker.paths import machine_position, repository_path
from anymetal.checker.report import Report
from anymetal.checker.terminal import summary

_FILE = "GITHUB_STEP_SUMMARY"
_MOST_ROWS = 200  # a step's summary holds 1 MiB


def add_to_step_summary(report: Report) -> None:
    """Append the table to the file that GitHub names, if there is one and anything to tell."""
    file = os.environ.get(_FILE)
    if file and (report.launches or report.findings):
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(summary_table(report) + "\n")


def summary_table(report: Report) -> str:
    """The summary line as a heading, and a row for each finding, errors first."""
    findings = (*report.errors, *report.warnings)
    rows = [_row(finding) for finding in findings[:_MOST_ROWS]]
    if rows:
        head = ["| | kernel | what | where | test |", "|---|---|---|---|---|"]
        rows = ["", *head, *rows]
    left = len(findings) - _MOST_ROWS
    more = ["", f"and {left} more"] if left > 0 else []
    return "\n".join([f"### {summary(report)}", *rows, *more]) + "\n"


def _row(finding: Finding) -> str:
    position = machine_position(finding.place.position, finding.launch)
    where = f"{repository_path(position.file)}:{position.line}" if position else ""
    test = (finding.launch and finding.launch.test) or ""
    mark = "❌" if finding.severity == "error" else "⚠️"
    what = f"{finding.message}. {finding.hint}"
    cells = (f"{mark} {finding.kind}", finding.kernel, what, where, test)
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    """Text as it is: nothing in it ends the cell or means anything to Markdown or HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\")
    for sign in "|*_[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
