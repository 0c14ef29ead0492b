"""The commands health, bench and tune: what they print, write and return."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from anymetal.cli.app import app
from anymetal.cli.verbs.health import line
from anymetal.cli.verbs.tune import table as tune_table
from anymetal.evidence.health import Health
from anymetal.evidence.judge import Judgement
from anymetal.evidence.sweep import Subject
from anymetal.evidence.tables import as_text
from anymetal.policy.policy import Question
from anymetal.policy.tuning_cache import Key, Trial, Tuned


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def only_the_sample(sample: ModuleType) -> ModuleType:
    return sample


def test_health(tmp_path: Path) -> None:
    page, table = tmp_path / "health.html", tmp_path / "accuracy.md"
    result = run("health", "--html", page, "--write-docs", table)
    assert result.exit_code == 0, result.stdout
    lines = [line for line in result.stdout.splitlines() if line.startswith("sample_square")]
    assert [line.split()[:2] for line in lines] == [
        ["sample_square", "ok"],
        ["sample_square_backward", "ok"],
    ]
    assert "2 of 2 operators pass" in result.stdout
    assert "<svg" in page.read_text() and "| sample_square |" in table.read_text()


def test_rows_of_the_table_are_renewed_and_others_stay(tmp_path: Path) -> None:
    table = tmp_path / "accuracy.md"
    run("health", "--write-docs", table)
    kept = table.read_text().replace("| sample_square | ", "| sample_square | kept ")
    table.write_text(kept.replace("| sample_square_backward | ", "| sample_square_backward | old "))
    assert run("health", "sample_square_backward", "--write-docs", table).exit_code == 0
    assert table.read_text() == kept
    table.write_text(kept.replace("Measured with torch", "Measured with torch 0 and"))
    refused = run("health", "sample_square_backward", "--write-docs", table)
    assert refused.exit_code == 2 and "on another machine" in refused.output.replace("\n", " ")


def test_health_fails(only_the_sample: ModuleType) -> None:
    only_the_sample.Mistakes.added = 0.1
    result = run("health", "sample_square")
    assert result.exit_code == 1
    assert "FAILS" in result.stdout and "1 of 2 operators pass" in result.stdout


def test_lines_of_health_fit_eighty_columns() -> None:
    """All figures stand in them, whatever the width; the longest names too."""
    name = "scaled_dot_product_attention_backward"
    wrong = Judgement(3e-4, 1e-7, 5e-7, 6e-8)
    errors = {"fp32": [wrong], "fp16": [wrong]}
    health = Health(name, errors, {"bf16": [wrong]}, [], True, 3, 12, 104.3)
    for width, rows in ((80, 2), (200, 1)):
        lines = str(line(health, width)).splitlines()
        assert len(lines) == rows and max(map(len, lines)) <= width
        for word in (name, "wrong", "opcheck" if rows == 2 else "ok", "12", "104.3 s"):
            assert word in " ".join(lines), word


def test_table_of_tune_fits_eighty_columns() -> None:
    values = {"rows": 64, "columns": 64, "depth": 16, "simdgroup_rows": 2, "max_columns": 32}
    question = Question("scaled_dot_product_attention", "bf16", "few_long_rows", "cpu", "tiles")
    trials = tuple(Trial(size, values, 123456.7, None) for size in (128, 1024))
    key = Key(*("x",) * len(fields(Key)))
    text = as_text(tune_table([(question, Tuned(key, trials[1], trials))]), width=80)
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    for word in ("simdgroup_rows=2", "max_columns=32", "1024", "123456.7", "1.00x"):
        assert word in text, word


def test_health_json() -> None:
    data = json.loads(run("health", "--cases", "1", "--json").stdout)
    assert data["passed"] is True
    first = data["operators"][0]
    assert first["operator"] == "sample_square" and first["opcheck"] is True
    assert first["results"]["bf16"]["passed"] is True


def test_compare_engines_needs_a_gpu() -> None:
    result = run("health", "--compare-engines", "--device", "cpu")
    assert result.exit_code == 1 and "no GPU here" in result.stdout


def test_bench(tmp_path: Path) -> None:
    log, plot = tmp_path / "history.jsonl", tmp_path / "plot.svg"
    common = ("bench", "sample_square", "--dtype", "fp32", "--seconds", "0.01")
    result = run(*common, "--history", log, "--plot", plot)
    assert result.exit_code == 0, result.stdout
    assert "say nothing about a GPU" in result.stdout
    assert "sample_square/fp32/elementwise/scalar, 2048/128" in result.stdout
    assert len(log.read_text().splitlines()) == 4
    assert plot.read_text().startswith("<svg")
    again = run(*common, "--sizes", "1", "--no-traffic", "--compare", log)
    assert again.exit_code in (0, 1) and "now/then" in again.stdout


def test_bench_of_a_wrong_operator(only_the_sample: ModuleType) -> None:
    only_the_sample.Mistakes.added = 0.5
    result = run(
        "bench", "--dtype", "fp32", "--seconds", "0.01", "--no-traffic", "--sizes", "1", "--json"
    )
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["rows"]
    assert [row["verdict"] == "wrong" for row in rows] == [True, False]
    assert "ours" not in rows[0]["microseconds"]


def test_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = tmp_path / "tuned.toml"
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    common = ("tune", "sample_square", "--dtype", "fp32", "--seconds", "0.01")
    result = run(*common, "--export", export)
    assert result.exit_code == 0, result.stdout
    assert "never on a GPU" in result.stdout and "sample_square_backward" in result.stdout
    assert "never on a GPU" in export.read_text()
    first = json.loads(run(*common, "--json").stdout)
    assert first == json.loads(run(*common, "--json").stdout)  # from the cache, to the digit
    assert len(first["rows"][0]["trials"]) == 3


def test_tune_stops_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    export = tmp_path / "tuned.toml"
    common = ("tune", "sample_square", "--device", "cpu", "--dtype", "fp32", "--seconds", "0.01")
    result = run(*common, "--export", export, "--limit", "0")
    assert result.exit_code == 1 and "Stopped after 0 of 2 questions" in result.stdout
    assert "version = 1" in export.read_text()
    answers: list[Question] = []

    def interrupted(subject: Subject, *_: object) -> Tuned:
        if answers:
            raise KeyboardInterrupt
        answers.append(subject.question)
        return Tuned(subject.key, Trial(32, {}, 1.0), (Trial(128, {}, 2.0), Trial(32, {}, 1.0)))

    monkeypatch.setattr("anymetal.cli.verbs.tune.sweep", interrupted)
    result = run(*common, "--export", export)
    assert result.exit_code == 0 and "Stopped after 1 of 2 questions" in result.stdout
    assert f'operator = "{answers[0].operator}"' in export.read_text()


def test_tune_stops_where_a_gpu_runs_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))

    def fails() -> None:
        raise RuntimeError("CUDA error: an illegal memory access\nmore")

    monkeypatch.setattr("anymetal.cli.verbs.tune.synchroniser", lambda device: fails)
    words = ("--device", "cpu", "--dtype", "fp32", "--seconds", "0.01")
    result = run("tune", "sample_square", *words)
    assert "no kernel runs here any more: CUDA error: an illegal memory access\n" in result.stdout
    assert "Stopped after 0 of 2 questions" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("health", "nonesuch"),
        ("bench", "--dtype", "int4"),
        ("tune", "--device", "tpu"),
        ("health", "--cases", "-1"),
        ("bench", "--compare", __file__),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2
