"""Instruction and memory counts of a run."""

from __future__ import annotations

import pytest
import torch

from anymetal import ShaderLibrary, compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void add(device const float* x, device const float* y, device float* out,
                uint i [[thread_position_in_grid]]) {
  out[i] = x[i] + y[i];
}
kernel void add4(device const float4* x, device const float4* y, device float4* out,
                 uint i [[thread_position_in_grid]]) {
  out[i] = x[i] + y[i];
}
kernel void triangle(device const float* x, device float* out,
                     uint i [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint j = 0; j <= i; ++j) sum += sin(x[j]);
  out[i] = sum;
}
kernel void reverse(device float* x, uint i [[thread_index_in_threadgroup]],
                    uint size [[threads_per_threadgroup]]) {
  threadgroup float tile[64];
  tile[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = simd_sum(tile[size - 1 - i]);
}
kernel void histogram(device const uint* x, device atomic_uint* bins,
                      uint i [[thread_position_in_grid]]) {
  if (x[i] != 0) atomic_fetch_add_explicit(&bins[x[i]], 1, memory_order_relaxed);
}
"""


@pytest.fixture(scope="module")
def lib() -> ShaderLibrary:
    return compile_shader(SOURCE)


@pytest.mark.parametrize("size", [0, 1, 33, 1000])
def test_memory_of_an_elementwise_kernel(lib: ShaderLibrary, size: int) -> None:
    x, out = torch.ones(size), torch.zeros(size)
    counts = lib.add.count(x, x, out)
    assert torch.equal(out, 2 * x)
    assert (counts.device_reads, counts.device_bytes_read) == (2 * size, 8 * size)
    assert (counts.device_writes, counts.device_bytes_written) == (size, 4 * size)
    assert counts.floating_point == size
    assert (counts.instructions >= 4 * size) and counts.threadgroup_reads == counts.barriers == 0


def test_vectors_move_the_same_bytes(lib: ShaderLibrary) -> None:
    x, out = torch.ones(400), torch.zeros(400)
    counts = lib.add4.count(x, x, out, threads=100)
    assert counts.device_bytes_read == 2 * 1600
    assert counts.device_bytes_written == 1600


def test_loop_is_counted_as_often_as_it_runs(lib: ShaderLibrary) -> None:
    x, out = torch.ones(50), torch.zeros(50)
    assert lib.triangle.count(x, out).device_reads == 50 * 51 // 2


def test_branch_is_counted_where_it_is_taken(lib: ShaderLibrary) -> None:
    x = (torch.arange(90, dtype=torch.int32) % 3).contiguous()
    bins = torch.zeros(3, dtype=torch.int32)
    counts = lib.histogram.count(x, bins)
    assert bins.tolist() == [0, 30, 30]
    assert counts.device_atomics == 60


def test_threadgroup_memory_and_waiting(lib: ShaderLibrary) -> None:
    x = torch.arange(64.0)
    counts = lib.reverse.count(x, group_size=64)
    assert (counts.threadgroup_reads, counts.threadgroup_bytes_read) == (64, 256)
    assert (counts.threadgroup_writes, counts.threadgroup_bytes_written) == (64, 256)
    assert (counts.device_reads, counts.device_writes) == (64, 64)
    assert (counts.barriers, counts.collectives) == (64, 64)
    expected = [sum(range(32, 64))] * 32 + [sum(range(32))] * 32
    assert x.tolist() == expected


def test_counting_starts_anew(lib: ShaderLibrary) -> None:
    x, out = torch.ones(10), torch.zeros(10)
    assert lib.add.count(x, x, out) == lib.add.count(x, x, out)


def test_counting_checks_arguments(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match="uses argument 'out'"):
        lib.add.count(torch.ones(3), torch.ones(3))
