"""`[tool.anymetal]`, severities on command lines, and the summary of a workflow's step."""

from __future__ import annotations

from pathlib import Path

import pytest
from sightings import overrun, race, unwritten

from anymetal.checker.project import CheckOptions, parse_severities, project_options
from anymetal.checker.report import Report
from anymetal.checker.step_summary import add_to_step_summary


def test_nearest_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    table = "[tool.anymetal]\nstrict = true\n[tool.anymetal.severity]\nunwritten_output = 'off'\n"
    (tmp_path / "pyproject.toml").write_text(table)
    wanted = CheckOptions(strict=True, severity={"unwritten_output": "off"})
    assert project_options(inner) == wanted
    assert wanted.with_more(False, True, {"race": "warning"}) == CheckOptions(
        True, True, {"unwritten_output": "off", "race": "warning"}
    )
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    assert project_options(inner) == CheckOptions()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("strikt = true", "no option 'strikt'; known are strict, nan, severity"),
        ("strict = 1", "strict is 1: expected true or false"),
        ("severity = 'off'", "severity is 'off': expected a table of kinds"),
        ("severity = {rase = 'off'}", "severity: no kind 'rase'"),
        ("severity = {race = 'no'}", r"severity\['race'\] is 'no': expected error, warning or off"),
        ("strict = ", "Invalid value"),
    ],
)
def test_mistake_names_the_file_and_the_key(table: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.anymetal]\n{table}\n")
    with pytest.raises(ValueError, match=f"pyproject.toml: .*{words}"):
        project_options(tmp_path)


def test_words_of_a_command_line() -> None:
    assert parse_severities(["race=off", "nan=warning"]) == {"race": "off", "nan": "warning"}
    for word, message in (("race", "expected KIND=LEVEL"), ("x=off", "no kind 'x'")):
        with pytest.raises(ValueError, match=message):
            parse_severities([word])


def test_step_summary_has_a_row_for_each_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    add_to_step_summary(Report())
    assert not file.exists()
    report = Report()
    report.launch("fill")
    for finding in (unwritten(), race(), overrun(message="a|b <b>x</b>")):
        report.add(finding)
    add_to_step_summary(report)
    add_to_step_summary(report)
    lines = file.read_text().splitlines()
    assert lines[0] == "### anymetal check: 1 kernel, 1 launch, 2 errors, 1 warning"
    assert lines.count(lines[0]) == 2
    rows = [line for line in lines[: len(lines) // 2] if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == [
        "| ❌ race",
        "| ❌ out\\_of\\_bounds",
        "| ⚠️ unwritten\\_output",
    ]
    assert rows[1].endswith(
        " | kernels/softmax\\_rows.metal:41 | tests/test\\_rows.py::test\\_rows\\[5\\] |"
    )
    assert "a\\|b &lt;b>x&lt;/b>" in rows[2]
    assert all(len(row.replace("\\|", "").split("|")) == 7 for row in rows)
