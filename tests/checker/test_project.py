"""`[tool.anymetal]`, severities on command lines, and the summary of a workflow's step."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from sightings import overrun, race, unwritten

from anymetal.checker.project import CheckOptions, parse_severities, project_options
from anymetal.checker.report import Report
from anymetal.checker.step_summary import add_to_step_summary
from anymetal.project import project


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
        ("tolerance = 2", "tolerance is 2: expected a table of dtypes"),
        ("tolerance = {float8 = 2}", "tolerance: no 'float8'; known are times_torch, float32"),
        ("tolerance = {float16 = -1}", "tolerance.float16 is -1: expected a number from 0 up"),
        ("include_dirs = 'x'", "include_dirs is 'x': expected a list"),
        ("include_dirs = ['gone']", "include_dirs has 'gone': no such directory in"),
        ("defines = {'2D' = 1}", "defines: '2D' is no name of a macro"),
        ("defines = {D = [1]}", r"defines.D is \[1\]: expected a number or one line"),
        ("policies = 'gone.toml'", "policies is 'gone.toml': expected a table, or a file in"),
    ],
)
def test_mistake_names_the_file_and_the_key(table: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.anymetal]\n{table}\n")
    with pytest.raises(ValueError, match=f"pyproject.toml: .*{words}"):
        project_options(tmp_path)


def test_page_has_every_key(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "pyproject.toml").write_text(example)
    (tmp_path / "policies.toml").touch()
    (tmp_path / "kernels" / "include").mkdir(parents=True)
    found = project(tmp_path)
    given = {one.name for one in fields(found) if f"\n{one.name} =" in example}
    given |= {one.name for one in fields(found) if f"[tool.anymetal.{one.name}]" in example}
    assert given == {one.name for one in fields(found)} - {"file"}
    assert dict(found.defines) == {"WIDTH": "4", "FAST": "1"}
    assert found.tolerance == {"times_torch": 4, "float16": 2e-3}
    table = page.partition("| key |")[2]
    for name in given:
        assert f"`{name}`" in table, name


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
