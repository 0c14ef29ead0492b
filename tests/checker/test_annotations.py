"""GitHub's workflow commands: one line a finding, with everything escaped that has a meaning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sightings import READ, overrun, race, unwritten

from anymetal.checker.annotations import annotation, annotation_lines, wanted
from anymetal.checker.finding import Place
from anymetal.checker.report import Report
from anymetal.nouns import Position


def test_annotation_of_an_error() -> None:
    line = annotation(race())
    properties = "file=kernels/softmax_rows.metal,line=41,col=9,title=race in softmax_rows"
    assert line.startswith(f"::error {properties}::error[race]")
    assert "%0A  write  thread 96" in line
    assert "\n" not in line


def test_annotation_of_a_warning_without_a_place() -> None:
    line = annotation(unwritten(place=Place(None, "", "", None, None, None)))
    assert line.startswith("::warning title=unwritten_output in fill::")


def test_special_characters_are_escaped() -> None:
    position = Position("a,b:c%d.metal", 1, 2)
    line = annotation(overrun(message="100%\r\nsure", place=replace(READ, position=position)))
    properties, message = line.removeprefix("::error ").split("::", 1)
    assert properties.startswith("file=a%2Cb%3Ac%25d.metal,line=1,")
    assert "100%25%0D%0Asure" in message


def test_file_is_relative_to_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    position = Position(str(tmp_path / "src" / "fill.metal"), 1, 2)
    line = annotation(overrun(place=replace(READ, position=position)))
    assert line.startswith("::error file=src/fill.metal,")


def test_errors_come_first() -> None:
    report = Report()
    for finding in (unwritten(), race()):
        report.add(finding)
    assert [line.split(" ")[0] for line in annotation_lines(report)] == ["::error", "::warning"]


@pytest.mark.parametrize(
    ("value", "expected"), [(None, False), ("", False), ("false", False), ("true", True)]
)
def test_wanted_in_a_workflow_only(
    value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    if value is not None:
        monkeypatch.setenv("GITHUB_ACTIONS", value)
    assert wanted() is expected
