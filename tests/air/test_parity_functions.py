"""Which math functions Apple's program of a kernel calls, and which ours (parity/functions.py); and
how many operations both have (parity/operations.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from anymetal.engines.choose import checking_target
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import Executable
from anymetal.engines.registry import METAL
from anymetal.launch.call import PlainKernel
from anymetal.nouns import Source

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity import executed, functions, mlx, operations, wheels

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
    assert operations.compared(rolled, apart) == "{'fmuladd': 12}, ours {'fadd': 12, 'fmul': 12}"


VECTORS = """
define float @f(<4 x float> %a, <4 x float> %b, ptr %p) {
entry:
  %sum = fadd <4 x float> %a, %b
  %turned = shufflevector <4 x float> %sum, <4 x float> %b, <2 x i32> <i32 2, i32 5>
  %quotient = fdiv <2 x float> %turned, splat (float 3.0)
  %negative = fneg <2 x float> %quotient
  %first = extractelement <2 x float> %negative, i64 0
  %product = fmul <4 x float> %a, %b
  store <4 x float> %product, ptr %p
  %fused = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %a, <4 x float> %b, <4 x float> %a)
  %changed = insertelement <4 x float> %fused, float %first, i64 3
  store <4 x float> %changed, ptr %p
  ret float %first
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
"""


def test_components_that_are_not_used_do_not_count() -> None:
    found = operations.operations_of(VECTORS)
    assert found == {"fadd": 1, "fdiv": 1, "fmul": 4, "fmuladd": 3}


BRANCHES = Source(
    """kernel void asks(device float* x, uint i [[thread_position_in_grid]]) {
  if (i % 4) x[i] = x[i] * x[i] + 1;
  if (i % 2) { x[i] = x[i] / 3; }
}
kernel void selects(device float* x, uint i [[thread_position_in_grid]]) {
  if (i % 4) x[i] = x[i] * x[i] + 1;
  float third = x[i] / 3;
  x[i] = i % 2 ? third : x[i];
}
kernel void apart(device float* x, uint i [[thread_position_in_grid]]) {
  if (i % 4) { float square = x[i] * x[i]; x[i] = square + 1; }
  if (i % 2) { x[i] = x[i] / 3; }
}""",
    name="branches.metal",
)


def test_what_is_carried_out_is_counted() -> None:
    asks, selects, apart = (
        METAL.program(BRANCHES, name, {}, checking_target(), optimise=True)
        for name in ("asks", "selects", "apart")
    )

    def launch(executable: Executable) -> None:
        kernel = PlainKernel(executable, {}, compiler, workers=1)
        kernel.call(None, (torch.ones(8),), 8, 8)

    compiler = Compiler(BRANCHES)
    assert executed.compared(asks, asks, launch) == "equal"
    assert executed.compared(asks, selects, launch) == (
        "as many fused: {'fdiv': 4, 'fmuladd': 6}, ours {'fdiv': 8, 'fmuladd': 6}"
    )
    assert executed.compared(asks, apart, launch) == (
        "{'fdiv': 4, 'fmuladd': 6}, ours {'fadd': 6, 'fdiv': 4, 'fmul': 6}"
    )


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
