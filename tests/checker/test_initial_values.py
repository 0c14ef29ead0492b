"""Threadgroup variables that begin with a value: static, so no thread stores it and nothing races
with it."""

from __future__ import annotations

import pytest
import torch

import anymetal
from anymetal import check

# As MLX's layer norm: partial sums begin with zero, so that every simdgroup may read all 32.
LAYER_NORM = """
#include <metal_stdlib>
using namespace metal;
template <typename T>
kernel void layer_norm(device const T* x, device T* y, constant uint& columns,
                       uint row [[threadgroup_position_in_grid]],
                       uint at [[thread_index_in_threadgroup]],
                       uint size [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simd [[simdgroup_index_in_threadgroup]]) {
  constexpr int slots = 32;
  threadgroup float sums[slots] = {0};
  threadgroup float squares[slots] = {0};
  threadgroup float2 statistic = float2(0.0f, -1.0f);
  float sum = 0, square = 0;
  for (uint i = at; i < columns; i += size) sum += float(x[row * columns + i]);
  sum = simd_sum(sum);
  if (lane == 0) sums[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float mean = simd_sum(sums[lane]) / columns;
  for (uint i = at; i < columns; i += size) {
    const float distance = float(x[row * columns + i]) - mean;
    square += distance * distance;
  }
  square = simd_sum(square);
  if (lane == 0) squares[simd] = square;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float variance = simd_sum(squares[lane]) / columns;
  const float scale = rsqrt(variance + 1e-5f) * -statistic.y;
  for (uint i = at; i < columns; i += size)
    y[row * columns + i] = T((float(x[row * columns + i]) - mean) * scale + statistic.x);
}
template [[host_name("layer_norm")]] kernel void layer_norm<float>(
    device const float*, device float*, constant uint&, uint, uint, uint, uint, uint);

// Reached late, and more than once: the value is there from the start, and only then.
kernel void counted(device uint* out, uint i [[thread_position_in_grid]],
                    uint at [[thread_index_in_threadgroup]]) {
  if (at == 0) return;
  for (uint round = 0; round < 3; round++) {
    threadgroup uint count = 5;
    if (at == 1) count += 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = count;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
"""


@pytest.mark.parametrize("engine", ["simdgroup", "coroutine"])
def test_values_are_there_before_the_kernel(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", engine)
    lib = anymetal.compile_shader(LAYER_NORM)
    assert lib.layer_norm.engine == engine
    x = torch.randn(3, 77)
    y = torch.empty_like(x)
    lib.layer_norm(x, y, 77, threads=(3 * 96,), group_size=(96,))
    wanted = torch.nn.functional.layer_norm(x.double(), (77,)).float()
    torch.testing.assert_close(y, wanted)


def test_nothing_races_with_the_initial_value() -> None:
    lib = anymetal.compile_shader(LAYER_NORM)
    x = torch.randn(2, 77)
    with check() as report:
        lib.layer_norm(x, torch.empty_like(x), 77, threads=(2 * 96,), group_size=(96,))
    assert not report.findings, report


def test_a_loop_does_not_store_it_again() -> None:
    out = torch.zeros(64, dtype=torch.int32)
    with check() as report:
        anymetal.compile_shader(LAYER_NORM).counted(out, threads=64, group_size=32)
    assert not report.errors, report
    assert out.tolist() == ([0] + [8] * 31) * 2


def test_a_value_that_is_no_constant_is_refused() -> None:
    source = "kernel void f(device float* x) { threadgroup float t = x[0]; x[1] = t; }"
    with pytest.raises(SyntaxError, match="constant"):
        anymetal.compile_shader(source)
