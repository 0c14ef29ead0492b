"""Operators on both CPU engines: the same bits, and really on the engine that was asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anymetal
from anymetal import ops
from anymetal.ops.declare.kernel_file import KernelFile

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


def _data(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def _attention() -> torch.Tensor:
    query, key, value = _data(3, 2, 33, 32)
    return ops.scaled_dot_product_attention(query, key, value, is_causal=True)


def _quantised() -> torch.Tensor:
    weight = ops.quantize(_data(96, 256), "int4")
    return ops.quantized_linear(_data(1, 256), weight)


CALLS: dict[str, Callable[[], torch.Tensor]] = {
    "silu": lambda: ops.silu(_data(3, 1031)),
    "softmax": lambda: ops.softmax(_data(5, 1031), -1),
    "rms_norm": lambda: ops.rms_norm(_data(5, 1030), (1030,), _data(1030)),
    "attention": _attention,
    "quantised": _quantised,
}


@pytest.mark.parametrize("name", CALLS)
def test_engines_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for engine in ("coroutine", "auto"):
        monkeypatch.setenv("ANYMETAL_ENGINE", engine)
        KernelFile._guarded.cache_clear()
        KernelFile._library.cache_clear()
        results.append(CALLS[name]())
    assert torch.equal(*results)


def test_the_fast_engine_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANYMETAL_ENGINE")
    kernel = anymetal.compile_shader(BASICS).rows
    x = _data(4, 1031).abs()
    y = torch.empty_like(x)
    kernel(x, y, 1031, threads=4 * 32, group_size=32)
    assert kernel.engine == "simdgroup"
    torch.testing.assert_close(y, x / x.sum(-1, keepdim=True))
