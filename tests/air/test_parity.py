"""A sample of `make parity`: Apple's compiled kernels beside ours (parity/)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from anymetal import check
from anymetal.engines.compiler import Compiler
from anymetal.launch.shader import ShaderLibrary

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity import mlx, pytorch, results, ways, wheels
from parity.__main__ import describe, is_good, shard
from parity.inputs import make_inputs
from parity.templates import AnyType, template_of

# Kernels whose arguments are compared, one of so many launched as well (compiling is what takes
# long), and PyTorch's.
KERNELS, LAUNCHED, TORCH = 400, 10, 60


def fetched(wheel: wheels.Wheel) -> None:
    try:
        wheels.fetch(wheel)
    except wheels.NoWheel as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"no network: {error}")


def with_source() -> list[str]:
    return [name for name in mlx.kernels() if mlx.has_source(name)]


def test_kernels_are_apples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arguments, and the same bits on the engine that compiles faster."""
    fetched(wheels.MLX)
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")  # judges set it themselves
    names = shard(with_source(), "1/1", KERNELS)
    launched = frozenset(names[::LAUNCHED])
    verdicts = list(results.judge_results(names, ["coroutine"], launched.__contains__))
    assert len(verdicts) == KERNELS
    assert [describe(verdict) for verdict in verdicts if not is_good(verdict)] == []
    assert sum(bool(verdict.results) for verdict in verdicts) == len(launched)


@pytest.mark.parametrize("name", ["vv_Minimumbfloat16", "row_reduce_small_1_reduce_sumfloat16"])
def test_results_are_equal_bit_by_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched(wheels.MLX)
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    (verdict,) = results.judge_results([name])
    assert verdict.results == (("simdgroup", "equal"), ("coroutine", "equal"))


def test_a_launch_stays_in_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this one, with a grid that was too small, the judge died: it wrote 200 KB below its
    threadgroup memory."""
    fetched(wheels.MLX)
    monkeypatch.setenv("ANYMETAL_ENGINE", "coroutine")
    one = mlx.noted("four_step_mem_4096_float2_float_1_true")
    assert one is not None
    kernel = ShaderLibrary(mlx.apples()._compiler).specialize(one.name, dict(one.constants))
    tables = [noted.argument for noted in one.notes.parameters]
    for launch in one.launches:
        inputs = make_inputs(one.name, tables, launch)
        with check() as report:
            given = inputs.arguments(inputs.block)
            kernel(*given, threads=launch.threads, group_size=launch.group)
        assert report.errors == ()


def test_code_made_soon_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As code that is made as always, from AIR and from source."""
    fetched(wheels.MLX)
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    (verdict,) = ways.judge_ways(["vs_Poweruint8"])
    assert verdict.results == (("simdgroup", "equal"), ("coroutine", "equal"))


def test_what_is_not_made_soon_is_made_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is too long for the simdgroup engine is not judged on another one."""
    fetched(wheels.MLX)
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    monkeypatch.setattr("anymetal.engines.cpu.simdgroups.engine.HEAVIEST_ON_DEMAND", 1)
    monkeypatch.setattr("anymetal.engines.cpu.simdgroups.engine._TIMES_AS_LONG", 0)
    one = mlx.noted("vv_Addint32")
    assert one is not None
    compiler = Compiler(mlx.source_of([one]))
    assert results.judged_together([one], compiler, ["simdgroup"]) == {}
    (verdict,) = results.judge_results([one.name], ["simdgroup"])
    ((_, word),) = verdict.results
    assert word.startswith("engine: kernel 'vv_Addint32' cannot run on the simdgroup engine")


def test_every_kernel_has_a_description() -> None:
    """Values for all of its arguments and function constants: one kernel of each template."""
    fetched(wheels.MLX)
    templates: dict[str, str] = {}
    for name in with_source():
        found = template_of(name, AnyType())
        assert found is not None
        templates.setdefault(found.function, name)
    assert len(templates) > 120
    for name in templates.values():
        one = mlx.noted(name)
        assert one is not None
        tables = [noted.argument for noted in one.notes.parameters]
        assert all(make_inputs(name, tables, launch).places for launch in one.launches), name
        assert len(one.constants) == len(one.notes.constants)


def test_pytorchs_kernels_agree_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched(wheels.TORCH)
    monkeypatch.setenv("ANYMETAL_ENGINE", "coroutine")
    names = [name for name in pytorch.kernels() if pytorch.has_case(name)]
    verdicts = list(pytorch.judge(shard(names, "1/1", TORCH)))
    assert len(verdicts) > TORCH // 2
    assert [describe(verdict) for verdict in verdicts if not is_good(verdict)] == []


def test_without_a_network_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "file:///nowhere")
    monkeypatch.setenv("PATH", "")
    missing = wheels.Wheel("mlx-metal-no-such-package", "0.0.1", "macosx_14_0_arm64")
    with pytest.raises(wheels.NoWheel, match=r"mlx-metal-no-such-package 0\.0\.1"):
        wheels.fetch(missing, tmp_path)
