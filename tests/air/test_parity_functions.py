"""Which math functions Apple's program of a kernel calls, and which ours (parity/functions.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from anymetal.engines.registry import METAL
from anymetal.nouns import Source

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity import functions, mlx, wheels

SOURCE = Source(
    """#include <metal_stdlib>
using namespace metal;
float deep(float x) { return fast::exp(x) + pow(x, 2.5f); }
kernel void k(device float* x, device half* y, uint i [[thread_position_in_grid]]) {
  x[i] = precise::exp(x[i]) + log(x[i]) + deep(x[i]) + fast::tanh(x[i]);
  y[i] = sin(y[i]);
}""",
    name="functions.metal",
)


def test_forms_are_told_apart() -> None:
    program = METAL.program(SOURCE, "k", {}, functions.TARGET, optimise=False)
    assert functions.functions_of(program) == {"exp", "log", "fast::exp", "pow", "tanh", "sin"}


def test_functions_are_those_that_apples_compiler_calls() -> None:
    try:
        wheels.fetch(wheels.MLX)
    except wheels.NoWheel as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"no network: {error}")
    names = ["sdpa_vector_float_64_64", "v_Logfloat32float32"]
    found = [dict(verdict.results) for verdict in mlx.judge_structure(names)]
    assert [words["functions"] for words in found] == ["equal", "equal"]
