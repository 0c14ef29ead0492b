"""Threadgroups that wait for each other: what docs/reliability.md promises about progress."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import anymetal

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// Each threadgroup waits until all have come: all of them must be under way at once.
kernel void grid_barrier(device atomic_uint* come, device uint* seen, constant uint& groups,
                         uint group [[threadgroup_position_in_grid]],
                         uint in_group [[thread_index_in_threadgroup]]) {
  if (in_group == 0) {
    atomic_fetch_add_explicit(come, 1u, memory_order_relaxed);
    while (atomic_load_explicit(come, memory_order_relaxed) < groups) {}
    seen[group] = atomic_load_explicit(come, memory_order_relaxed);
  }
}

// Decoupled look-back: a threadgroup waits for the sum of the one before it.
kernel void look_back(device const uint* x, device atomic_uint* sums, device uint* y,
                      uint group [[threadgroup_position_in_grid]],
                      uint in_group [[thread_index_in_threadgroup]],
                      uint size [[threads_per_threadgroup]]) {
  if (in_group != 0) return;
  uint before = 0;
  if (group > 0) {
    do before = atomic_load_explicit(&sums[group - 1], memory_order_relaxed);
    while (before == 0u);
    before -= 1;
  }
  uint total = before;
  for (uint i = 0; i < size; ++i) y[group * size + i] = total += x[group * size + i];
  atomic_store_explicit(&sums[group], total + 1, memory_order_relaxed);
}

// A ticket lock between threadgroups around a sum that is no atomic.
kernel void ticket_lock(device atomic_uint* lock, device uint* total,
                        uint in_group [[thread_index_in_threadgroup]]) {
  if (in_group != 0) return;
  uint mine = atomic_fetch_add_explicit(&lock[0], 1u, memory_order_relaxed);
  while (atomic_load_explicit(&lock[1], memory_order_relaxed) != mine) {}
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  total[0] += mine;
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  atomic_store_explicit(&lock[1], mine + 1, memory_order_relaxed);
}
"""


@pytest.fixture(scope="module")
def lib() -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(SOURCE)


@pytest.fixture(params=[1, 2])
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def zeros(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32)


@pytest.mark.parametrize("groups", [3, 17, 40])
def test_all_threadgroups_meet(lib: anymetal.ShaderLibrary, groups: int) -> None:
    """Twice, as the threads that a standstill adds are gone afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    for _ in range(2):
        seen = zeros(groups)
        lib.grid_barrier(zeros(1), seen, groups, threads=groups * 32, group_size=32)
        assert seen.tolist() == [groups] * groups
    torch.set_num_threads(before)


@pytest.mark.parametrize("groups", [1, 7, 500])
def test_look_back_needs_no_more_than_it_has(
    lib: anymetal.ShaderLibrary, groups: int, workers: int
) -> None:
    x = torch.randint(0, 9, (groups * 32,), dtype=torch.int32)
    y = zeros(groups * 32)
    lib.look_back(x, zeros(groups), y, threads=groups * 32, group_size=32)
    assert torch.equal(y, torch.cumsum(x, 0, dtype=torch.int32))


@pytest.mark.parametrize("groups", [1, 9, 500])
def test_ticket_lock_needs_no_more_than_it_has(
    lib: anymetal.ShaderLibrary, groups: int, workers: int
) -> None:
    total = zeros(1)
    lib.ticket_lock(zeros(2), total, threads=groups * 32, group_size=32)
    assert total.item() == groups * (groups - 1) // 2
