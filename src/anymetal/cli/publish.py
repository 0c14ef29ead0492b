"""A report goes to people, to GitHub and to the files that were asked for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from anymetal.checker.annotations import annotation_lines, wanted
from anymetal.checker.json_report import json_text
from anymetal.checker.junit import junit_text
from anymetal.checker.report import Report
from anymetal.checker.sarif import sarif_text
from anymetal.checker.step_summary import add_to_step_summary
from anymetal.checker.terminal import print_report
from anymetal.cli.files import STDOUT


@dataclass(frozen=True)
class Files:
    """Where the report goes besides the terminal; `-` is stdout."""

    json: str | None = None
    sarif: str | None = None
    junit: str | None = None

    @property
    def to_stdout(self) -> bool:
        return STDOUT in (self.json, self.sarif, self.junit)


def publish(report: Report, files: Files, strict: bool) -> None:
    """Print for people (to stderr where stdout has a file), write for machines."""
    people = sys.stderr if files.to_stdout else sys.stdout
    print_report(report, people)
    for line in annotation_lines(report) if wanted() else ():
        print(line, file=people)
    add_to_step_summary(report)
    if files.json:
        write(files.json, json_text(report))
    if files.sarif:
        write(files.sarif, sarif_text(report))
    if files.junit:
        write(files.junit, junit_text(report, strict))


def write(target: str, text: str) -> None:
    """To a file, or to stdout where that is `-`."""
    if target == STDOUT:
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")
