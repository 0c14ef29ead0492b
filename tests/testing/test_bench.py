"""`do_bench` and `anymetal bench` for functions and kernels of the user's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from own_sample import SOURCE, reference, scaled, wrong
from typer.testing import CliRunner, Result

from anymetal.cli.app import app
from anymetal.cli.bench_tables import table
from anymetal.evidence.judge import Judgement
from anymetal.evidence.measure import NAIVE, OURS, TORCH, Row
from anymetal.evidence.tables import as_text
from anymetal.evidence.timing import summarise
from anymetal.testing import do_bench

HERE = Path(__file__).parent
FUNCTION = f"{HERE / 'own_sample.py'}::scaled"
QUICK = ("--seconds", "0.01", "--arg", "float32[1000]=random")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def metal(tmp_path: Path) -> Path:
    file = tmp_path / "scaled.metal"
    file.write_text(SOURCE)
    return file


def test_do_bench_judges_times_and_counts() -> None:
    x = torch.randn(1000)
    timing = do_bench(scaled, x, baseline=reference, count=True, seconds=0.02)
    low, high = timing.quartiles
    assert 0 < low <= timing.median <= high
    assert timing.bytes == 8000 + 4 * 1000  # x, y, and the factor that every thread reads
    assert timing.gigabytes_per_second == pytest.approx(timing.bytes / timing.median / 1e3)
    assert timing.row.launch == "1000/64" and timing.row.launches == 1
    assert "of the baseline's" in str(timing)
    given = do_bench(scaled, x, bytes=8000, flops=1000, seconds=0.01)
    assert given.bytes == 8000 and given.row.gigaflops is not None and given.baseline is None


def test_do_bench_refuses_a_wrong_result() -> None:
    with pytest.raises(ValueError, match=r"do_bench: wrong is wrong: error 0.33"):
        do_bench(wrong, torch.randn(100), baseline=reference, seconds=0.01)


def test_command_times_a_function(tmp_path: Path) -> None:
    log, plot = tmp_path / "history.jsonl", tmp_path / "plot.svg"
    given = ("bench", FUNCTION, *QUICK, "--baseline", f"{HERE / 'own_sample.py'}::reference")
    result = run(*given, "--history", log, "--plot", plot)
    assert result.exit_code == 0, result.output
    assert "scaled float32 1000 forward" in result.stdout and "1000/64" in result.stdout
    assert plot.read_text().startswith("<svg")
    again = run(*given, "--compare", log)
    assert again.exit_code in (0, 1) and "now/then" in again.stdout


def test_command_times_a_kernel(metal: Path) -> None:
    arguments = ("--arg", "float32[1000]", "--arg", "3.0", "--group-size", "32")
    given = ("bench", metal, *QUICK, *arguments)
    right = run(*given, "--baseline", f"{HERE / 'own_sample.py'}::reference", "--json")
    row = json.loads(right.stdout)["rows"][0]
    assert right.exit_code == 0 and row["verified"] and row["launches"] == 1
    assert row["least_bytes"] == 12000 and row["operator"] == "scaled"
    assert {"p25", "p50", "p75"} <= row["microseconds"]["ours"].keys()
    bad = run(*given, "--baseline", f"{HERE / 'own_sample.py'}::wrong", "--json")
    assert bad.exit_code == 1 and json.loads(bad.stdout)["rows"][0]["verdict"] == "wrong"
    alone = json.loads(run(*given, "--bytes", "8000", "--json").stdout)["rows"][0]
    assert alone["verified"] is False and alone["traffic"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((f"{HERE / 'own_sample.py'}::absent",), "has no function 'absent'"),
        (("absent.py::f",), "no such file: absent.py"),
        ((str(HERE / "own_sample.py"),), "which function?"),
        ((FUNCTION, "softmax"), "in runs of their own"),
        ((FUNCTION, "--baseline", "nonesuch.f"), "expected FILE.py::NAME or module.name"),
        ((FUNCTION, "--history", "/nonesuch/h.jsonl"), "no such folder: /nonesuch"),
        (("softmax", "--plot", "/nonesuch/p.svg"), "no such folder: /nonesuch"),
        (("softmax", "--plot", str(HERE)), "it is a folder"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = run("bench", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", "").split())


@pytest.mark.parametrize(
    "words",
    [
        ("health", "softmax", "--html", "/nonesuch/file"),
        ("check", "--json", "/nonesuch/file", __file__),
        ("tune", "--export", "/nonesuch/file"),
        ("lint", "--sarif", "/nonesuch/file", str(HERE / "five.metal")),
        (
            "compile",
            "--output",
            "/nonesuch/file",
            "--target",
            "cuda-sm90",
            str(HERE / "five.metal"),
        ),
    ],
)
def test_files_of_other_commands_are_opened_first(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "no such folder: /nonesuch" in " ".join(result.output.replace("│", "").split())


def test_table_fits_eighty_columns() -> None:
    times = summarise([123456.0, 123999.0, 124444.0] * 3)
    right = Judgement(1.2e-7, 1.1e-7, 1e-6)
    row = Row(
        *("linear_cross_entropy", "bf16", "2048x1024, 3200x1024", "backward", 1 << 20),
        times={OURS: times, TORCH: times, NAIVE: times},
        judgements={OURS: right, TORCH: right, NAIVE: right},
        least_bytes=10**12,
        moved_bytes=10**12,
        variant="linear_cross_entropy/bf16/elementwise/vector",
        launch="2048x32/256",
        flops=10**13,
        launches=12,
    )
    text = as_text(table([row]), width=80)
    assert max(map(len, text.splitlines())) <= 80
    joined = "".join(text.split())
    for word in ("linear_cross", "2048x1024,", "3200x1024", "backward", "2048x32/256", "naive"):
        assert word in joined or word in text
    for number in ("123999", "1.2e-07", "1.1e-07", "12", "1.00", "even", "8064.6"):
        assert number in text, number
