"""Operators on both CPU engines: the same bits, and really on the engine that was asked for."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from judging import called, tensors_of
from test_operators import OPERATORS, fresh, made, results_of, some

import anymetal
from anymetal.launch.kernel import Kernel
from anymetal.ops.declare import AnyOperator
from anymetal.ops.declare.kernel_file import KernelFile, kernel_file
from anymetal.passes.simdgroup.rules import GroupShape

BASICS = """
#include <metal_stdlib>
using namespace metal;
kernel void rows(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                 constant uint& columns [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]]) {
  float total = 0.0f;
  for (uint i = lane; i < columns; i += 32) total += x[row * columns + i];
  total = simd_sum(total);
  for (uint i = lane; i < columns; i += 32) y[row * columns + i] = x[row * columns + i] / total;
}
"""
REFERENCE = "coroutine"
IN_A_ROW = GroupShape(32, complete=True)
MATMUL, BACKWARD = map(kernel_file, ("matmul/matmul.metal", "attention/backward.metal"))


def results(operator: AnyOperator) -> list[Any]:
    """What one case gives, and its gradients."""
    args, keywords = made(some(operator, 1)[0], torch.float32)
    outputs = tensors_of(results_of(operator, fresh(args), keywords))
    if operator.differentiable:
        outputs += called(operator, args, keywords, operator)
    return outputs


# A third of them, of each family some; `make thorough` has all.
SAMPLE = list(OPERATORS)[:: 1 if os.environ.get("ANYMETAL_TEST_ALL") == "1" else 3]


@pytest.mark.parametrize("name", SAMPLE)
def test_engines_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both, engines = [], set()
    plain_call, plain_in_turn = Kernel.__call__, Kernel.in_turn

    def call(kernel: Kernel, *args: Any, **options: Any) -> None:
        engines.add((os.environ["ANYMETAL_ENGINE"], kernel.engine))
        plain_call(kernel, *args, **options)

    def in_turn(kernel: Kernel, launches: Any, group_size: int) -> None:
        engines.add((os.environ["ANYMETAL_ENGINE"], kernel.engine))
        plain_in_turn(kernel, launches, group_size)

    monkeypatch.setattr(Kernel, "__call__", call)
    monkeypatch.setattr(Kernel, "in_turn", in_turn)
    for engine in (REFERENCE, "auto"):
        monkeypatch.setenv("ANYMETAL_ENGINE", engine)
        KernelFile._guarded.cache_clear()
        KernelFile._library.cache_clear()
        KernelFile._instance.cache_clear()
        both.append(results(OPERATORS[name]))
    for reference, result in zip(*both, strict=True):
        torch.testing.assert_close(result, reference, rtol=0, atol=0, equal_nan=True)
    assert {engine for asked, engine in engines if asked == REFERENCE} == {REFERENCE}
    assert {engine for asked, engine in engines if asked == "auto"} <= {"simdgroup"}, "too long"


def test_the_fast_engine_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANYMETAL_ENGINE")
    kernel = anymetal.compile_shader(BASICS).rows
    x = torch.rand(4, 1031, generator=torch.Generator().manual_seed(7))
    y = torch.empty_like(x)
    kernel(x, y, 1031, threads=4 * 32, group_size=32)
    assert kernel.engine == "simdgroup"
    torch.testing.assert_close(y, x / x.sum(-1, keepdim=True))


# The longest of two families; `python tests/engines/lengths.py` has all.
LONG = {
    "columns_8_vec4_half": MATMUL.text,
    "key_gradient": BACKWARD.text
    + """template [[host_name("key_gradient")]] [[kernel]]
decltype(attention_key_gradient<half, half, 128, false, 1, 0>)
    attention_key_gradient<half, half, 128, false, 1, 0>;""",
}


@pytest.mark.parametrize(
    "name", LONG if os.environ.get("ANYMETAL_TEST_ALL") == "1" else [*LONG][:1]
)
def test_no_kernel_is_too_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vector code of more than 20,000 instructions runs in its long form."""
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    kernel = getattr(anymetal.compile_shader(LONG[name]), name)
    assert (kernel.engine, kernel.engine_reason) == ("simdgroup", "")
    assert kernel._plain.executable.written_for(IN_A_ROW).result.is_long
