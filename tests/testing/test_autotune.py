"""`@anymetal.autotune` and `anymetal tune FILE.metal`: chosen, verified, kept, shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_sample import SOURCE
from typer.testing import CliRunner, Result

import anymetal
from anymetal import compile_shader
from anymetal.evidence.configurations import AutotuneError, Place, kept
from anymetal.evidence.tables import as_text
from anymetal.launch.handing import Tally, handed_to

SIZES = [{"group_size": size} for size in (32, 64, 2048)]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(anymetal_app(), [str(argument) for argument in arguments])


def anymetal_app() -> Any:
    from anymetal.cli.app import app  # noqa: PLC0415

    return app


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernels come from the shared cache; what is tuned stays in the test."""
    library = compile_shader(SOURCE)
    assert library.scaled  # compiled before the cache changes
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    yield


def make(configs: Any = SIZES, source: str = SOURCE, calls: list[Any] | None = None) -> Any:
    library = compile_shader(source)

    @anymetal.autotune(configs=configs, key=["x"], seconds=0.01)
    def scaled(x: torch.Tensor, *, group_size: int, factor: float = 3.0) -> torch.Tensor:
        if calls is not None:
            calls.append(group_size)
        y = torch.empty_like(x)
        library.scaled(x, y, factor, threads=x.numel(), group_size=group_size)
        return y

    return scaled


def test_invalid_configurations_are_skipped_with_the_reason() -> None:
    scaled, x = make(), torch.randn(100)
    assert torch.equal(scaled(x), 3 * x)
    trials = scaled.tuned(x).trials
    assert [trial.failure is None for trial in trials] == [True, True, False]
    assert "Threadgroup size exceeds 1024 limit" in str(trials[2].failure)
    assert all(trial.microseconds for trial in trials[:2])


def test_each_key_is_tuned_once_and_kept_for_other_processes() -> None:
    calls: list[Any] = []
    scaled = make(calls=calls)
    for size in (100, 50, 100, 50):
        scaled(torch.randn(size))
    assert {one.key for one in kept()} == {"x=float32[100]", "x=float32[50]"}
    again: list[Any] = []
    make(calls=again)(torch.randn(100))  # as another process would
    assert len(again) == 1 and len(calls) > 10


def test_a_changed_kernel_is_tuned_again() -> None:
    x = torch.randn(100)
    make()(x)
    calls: list[Any] = []
    changed = SOURCE.replace("factor * x[i]", "x[i] * factor")
    make(source=changed, calls=calls)(x)
    assert len(calls) > 3


def test_a_result_that_differs_from_most_is_wrong() -> None:
    configs = [{"group_size": 32, "factor": f} for f in (3.0, 5.0)] + [
        {"group_size": 64, "factor": 3.0}
    ]
    scaled, x = make(configs), torch.randn(33)
    assert torch.equal(scaled(x), 3 * x)
    assert scaled.tuned(x).trials[1].failure == "its result differs from that of 2 others"


def test_a_tie_between_results_is_an_error() -> None:
    configs = [{"group_size": 32, "factor": factor} for factor in (3.0, 5.0)]
    with pytest.raises(AutotuneError, match=r"factor=3\.0 and with .*factor=5\.0 differ"):
        make(configs)(torch.randn(33))


def test_nothing_that_works_is_an_error_with_the_reasons() -> None:
    with pytest.raises(AutotuneError, match=r"no configuration works:\n.*group_size=2048: Limit"):
        make([{"group_size": 2048}])(torch.randn(33))


def test_written_arguments_are_compared_and_stay_as_they_were() -> None:
    library = compile_shader(SOURCE)

    @anymetal.autotune(space={"group_size": [32, 64]}, key=["x"], seconds=0.01)
    def scale_into(x: torch.Tensor, y: torch.Tensor, group_size: int = 32) -> None:
        library.scaled(x, y, 2.0, threads=x.numel(), group_size=group_size)

    x, y = torch.randn(40), torch.zeros(40)
    scale_into(x, y)
    assert torch.equal(y, 2 * x)
    assert all(trial.failure is None for trial in scale_into.tuned(x, y).trials)


def test_under_a_count_nothing_is_measured() -> None:
    tally = Tally()
    with handed_to(tally):
        make()(torch.randn(10))
    assert len(tally.launches) == 1 and not kept()


def test_mistakes_are_named() -> None:
    with pytest.raises(TypeError, match="pass configs or space, one of the two"):
        anymetal.autotune(configs=[{}], space={})
    with pytest.raises(ValueError, match="0 configurations"):
        anymetal.autotune(configs=[])

    def one(x: Any) -> Any:
        return x

    with pytest.raises(ValueError, match=r"a configuration sets 'group_size', but .*one takes x"):
        anymetal.autotune(configs=SIZES)(one)
    with pytest.raises(ValueError, match=r"key has 'n', but .*one takes x"):
        anymetal.autotune(configs=[{"x": 1}], key=["n"])(one)


def test_command_sweeps_group_sizes_and_lists_them(tmp_path: Path) -> None:
    file = tmp_path / "scaled.metal"
    file.write_text(SOURCE)
    words = ("--arg", "float32[1000]=random", "--arg", "float32[1000]", "--arg", "3.0")
    given = ("tune", file, *words, "--seconds", "0.01")
    result = run(*given)
    assert result.exit_code == 0, result.output
    assert "group_size=1024" in result.stdout and "best" in result.stdout
    first = json.loads(run(*given, "--json").stdout)
    assert first == json.loads(run(*given, "--json").stdout)  # from the cache, to the digit
    assert len(first["trials"]) == 6
    listed = run("tune", "--list").stdout
    assert "scaled" in listed and re.search(r"group_size=\d+", listed)
    own = json.loads(run("tune", "--list", "--json").stdout)["own"]
    assert own[0]["function"] == "scaled"
    wide = run("tune", file, *words, "--seconds", "0.01", "--threads", "40,25", "--json")
    sizes = [trial["configuration"]["group_size"] for trial in json.loads(wide.stdout)["trials"]]
    assert [8, 8] in sizes and all(32 <= x * y <= 1024 for x, y in sizes)


def test_command_refuses_mistakes(tmp_path: Path) -> None:
    assert "no such file" in run("tune", "absent.metal").output
    assert "functions use" in run("tune", "absent.py::f").output
    file = tmp_path / "scaled.metal"
    file.write_text(SOURCE)
    assert "pass --threads" in run("tune", file, "--arg", "3.0").output


def test_tables_fit_eighty_columns(tmp_path: Path) -> None:
    from anymetal.cli.tuned_kernel import trials_table  # noqa: PLC0415

    scaled, x = make(), torch.randn(100)
    scaled(x)
    text = as_text(trials_table(scaled.tuned(x)), width=80)
    assert max(map(len, text.splitlines())) <= 80 and "LimitError" in text
    assert isinstance(Place("f", "k", "c", torch.device("cpu")).digest(), str)
