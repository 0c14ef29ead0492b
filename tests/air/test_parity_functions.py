"""Which math functions Apple's program of a kernel calls, and which ours (parity/functions.py); and
how many operations both have (parity/operations.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from anymetal.engines.choose import checking_target
from anymetal.engines.registry import METAL
from anymetal.nouns import Source

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity import functions, mlx, operations, wheels

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


LOOPS = Source(
    """#include <metal_stdlib>
using namespace metal;
kernel void rolled(device const float4* a, device float4* s, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < 3; ++n) s[i] += a[n] * s[i + 1];
}
kernel void unrolled(device const float* a, device float* s, uint i [[thread_position_in_grid]]) {
  for (int c = 0; c < 4; ++c) s[i * 4 + c] += a[c] * s[(i + 1) * 4 + c];
  for (int c = 0; c < 4; ++c) s[i * 4 + c] += a[4 + c] * s[(i + 1) * 4 + c];
  for (int c = 0; c < 4; ++c) s[i * 4 + c] += a[8 + c] * s[(i + 1) * 4 + c];
}
kernel void apart(device const float4* a, device float4* s, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < 3; ++n) {
    float4 product = a[n] * s[i + 1];
    s[i] += product;
  }
}""",
    name="loops.metal",
)


def test_operations_are_counted_whatever_the_loops() -> None:
    rolled, unrolled, apart = (
        METAL.program(LOOPS, name, {}, checking_target(), optimise=True)
        for name in ("rolled", "unrolled", "apart")
    )
    assert operations.compared(rolled, unrolled) == "equal"
    assert operations.compared(rolled, apart) == "{'fmuladd': 12}, ours {'fmul': 12, 'fadd': 12}"
    ir = "%a = fadd <2 x float> %b, %c\n%d = tail call <4 x half> @llvm.fmuladd.v4f16(...)"
    assert operations.operations_of(ir) == {"fadd": 2, "fmuladd": 4}


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
