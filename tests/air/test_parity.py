"""A sample of `make parity`: Apple's compiled kernels beside ours (parity/)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity import mlx, pytorch, wheels
from parity.__main__ import describe, is_good, shard

# Of tables a few batches, of results one kernel of each kind: compiling is what takes long.
TABLES, RESULTS, TORCH = 280, 4, 120


def fetched(wheel: wheels.Wheel) -> None:
    try:
        wheels.fetch(wheel)
    except wheels.NoWheel as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"no network: {error}")


def with_source() -> list[str]:
    return [name for name in mlx.kernels() if mlx.has_source(name)]


def test_argument_tables_are_apples() -> None:
    fetched(wheels.MLX)
    names = shard(with_source(), "1/1", TABLES)
    verdicts = list(mlx.judge_tables(names))
    assert len(verdicts) == TABLES
    assert [describe(verdict) for verdict in verdicts if not is_good(verdict)] == []


def test_results_are_equal_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched(wheels.MLX)
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")  # judges set it themselves
    verdicts = list(mlx.judge_results(shard(with_source(), "1/1", RESULTS)))
    assert len(verdicts) == RESULTS
    assert [describe(verdict) for verdict in verdicts if not is_good(verdict)] == []
    assert any(word == "equal" for verdict in verdicts for _, word in verdict.results)


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
