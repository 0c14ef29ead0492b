"""The coroutine engine: grids and their edges, divergence, stopping, threads and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from anymetal import compile_shader
from anymetal.errors import EngineError, KernelTimeout

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

POSITIONS = (
    HEADER
    + """
kernel void positions(device uint* out, constant uint3& grid,
                      uint3 in_grid [[thread_position_in_grid]],
                      uint3 in_group [[thread_position_in_threadgroup]],
                      uint3 group [[threadgroup_position_in_grid]],
                      uint3 size [[threads_per_threadgroup]],
                      uint3 nominal [[dispatch_threads_per_threadgroup]],
                      uint3 groups [[threadgroups_per_grid]],
                      uint index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simd [[simdgroup_index_in_threadgroup]],
                      uint simds [[simdgroups_per_threadgroup]]) {
  BARRIER
  device uint* row = out + ((in_grid.z * grid.y + in_grid.y) * grid.x + in_grid.x) * 20;
  for (uint i = 0; i < 3; ++i) {
    row[i] = in_grid[i]; row[3 + i] = in_group[i]; row[6 + i] = group[i];
    row[9 + i] = size[i]; row[12 + i] = nominal[i];
  }
  row[15] = groups.x * groups.y * groups.z;
  row[16] = index; row[17] = lane; row[18] = simd; row[19] = simds;
}
"""
)


@pytest.mark.parametrize("barrier", ["", "threadgroup_barrier(mem_flags::mem_none);"])
@pytest.mark.parametrize(
    ("grid", "group"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((70, 1, 1), (32, 1, 1)),
        ((13, 7, 3), (4, 4, 2)),
        ((5, 9, 11), (8, 8, 4)),
    ],
)
def test_positions_of_every_thread_with_smaller_groups_at_the_edges(
    barrier: str, grid: tuple[int, int, int], group: tuple[int, int, int]
) -> None:
    library = compile_shader(POSITIONS.replace("BARRIER", barrier))
    out = torch.full((grid[2], grid[1], grid[0], 20), 2**31 - 1, dtype=torch.int32)
    shape = torch.tensor([*grid, 0], dtype=torch.int32)
    library.positions(out, shape, threads=grid, group_size=group)
    groups = [-(-g // s) for g, s in zip(grid, group, strict=True)]
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                place = (x, y, z)
                own = [p // s for p, s in zip(place, group, strict=True)]
                inside = [p % s for p, s in zip(place, group, strict=True)]
                size = [min(s, g - o * s) for s, g, o in zip(group, grid, own, strict=True)]
                index = (inside[2] * size[1] + inside[1]) * size[0] + inside[0]
                threads = size[0] * size[1] * size[2]
                expected = [
                    *place, *inside, *own, *size, *group, groups[0] * groups[1] * groups[2],
                    index, index % 32, index // 32, -(-threads // 32),
                ]  # fmt: skip
                assert out[z, y, x].tolist() == expected


def test_grid_larger_than_its_workers_is_covered_once() -> None:
    source = (
        HEADER
        + """
    kernel void count(device atomic_uint* total, device uchar* seen,
                      uint i [[thread_position_in_grid]]) {
      atomic_fetch_add_explicit(total, 1u, memory_order_relaxed);
      seen[i] += 1;
    }"""
    )
    total = torch.zeros(1, dtype=torch.int32)
    seen = torch.zeros(1_000_003, dtype=torch.uint8)
    compile_shader(source).count(total, seen, threads=seen.numel(), group_size=96)
    assert total.item() == seen.numel()
    assert (seen == 1).all()


def test_threadgroup_of_1024_threads_passes_barriers_in_a_loop() -> None:
    source = (
        HEADER
        + """
    kernel void rotate(device uint* out, uint i [[thread_index_in_threadgroup]]) {
      threadgroup uint ring[1024];
      ring[i] = i;
      for (uint round = 0; round < 5; ++round) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint next = ring[(i + 1) % 1024];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        ring[i] = next;
      }
      out[i] = ring[i];
    }"""
    )
    out = torch.zeros(1024, dtype=torch.int32)
    compile_shader(source).rotate(out, threads=1024, group_size=1024)
    assert out.tolist() == [(i + 5) % 1024 for i in range(1024)]


def test_lanes_that_skip_a_collective_in_a_loop_do_not_run_ahead() -> None:
    source = (
        HEADER
        + """
    kernel void rounds(device uint* out, uint lane [[thread_index_in_simdgroup]]) {
      uint seen = 0;
      for (uint i = 0; i < lane % 5 + 2; ++i) {
        if ((lane + i) % 3 == 0) continue;
        seen = seen * 33 + simd_sum(1u);
      }
      out[lane] = seen + 1000000 * simd_sum(1u);
    }"""
    )
    out = torch.zeros(32, dtype=torch.int32)
    compile_shader(source).rounds(out, threads=32, group_size=32)
    expected = [0] * 32
    for i in range(6):
        meeting = [lane for lane in range(32) if i < lane % 5 + 2 and (lane + i) % 3]
        for lane in meeting:
            expected[lane] = expected[lane] * 33 + len(meeting)
    assert out.tolist() == [(value + 32_000_000) % 2**32 for value in expected]


def test_collective_after_threads_have_ended_takes_the_rest() -> None:
    source = (
        HEADER
        + """
    kernel void rest(device uint* out, uint lane [[thread_index_in_simdgroup]]) {
      if (lane >= 20) return;
      out[lane] = simd_sum(1u);
    }"""
    )
    out = torch.zeros(32, dtype=torch.int32)
    compile_shader(source).rest(out, threads=32, group_size=32)
    assert out.tolist() == [20] * 20 + [0] * 12


def test_vectors_may_stand_at_element_alignment() -> None:
    source = (
        HEADER
        + """
    kernel void copy(device const float4* from, device float4* to,
                     uint i [[thread_position_in_grid]]) { to[i] = from[i] * 2.0f; }"""
    )
    source_tensor = torch.arange(65, dtype=torch.float32)
    target = torch.zeros(66)
    compile_shader(source).copy(source_tensor[1:], target[2:], threads=16)
    assert torch.equal(target[2:66], source_tensor[1:65] * 2)


def test_integer_division_by_zero_does_not_trap() -> None:
    source = (
        HEADER
        + """
    kernel void divide(device int* out, device const int* a, device const int* b,
                       uint i [[thread_position_in_grid]]) {
      out[i] = a[i] / b[i] + a[i] % b[i];
    }"""
    )
    out = torch.ones(3, dtype=torch.int32)
    left = torch.tensor([7, -(2**31), 9], dtype=torch.int32)
    right = torch.tensor([0, -1, 4], dtype=torch.int32)
    compile_shader(source).divide(out, left, right)
    assert out.tolist() == [0, -(2**31), 3]


def test_same_tensor_at_two_indices_gives_equal_pointers() -> None:
    source = (
        HEADER
        + """
    kernel void same(device float* a, device float* b, device uint* out) { out[0] = a == b; }"""
    )
    tensor, out = torch.zeros(4), torch.full((1,), 7, dtype=torch.int32)
    compile_shader(source).same(tensor, tensor, out, threads=1)
    assert out.item() == 1


def test_recursion_without_barriers_runs() -> None:
    source = (
        HEADER
        + """
    uint factorial(uint n) { return n < 2 ? 1 : n * factorial(n - 1); }
    kernel void go(device uint* out, uint i [[thread_position_in_grid]]) {
      out[i] = factorial(i);
    }"""
    )
    out = torch.zeros(8, dtype=torch.int32)
    compile_shader(source).go(out)
    assert out.tolist() == [1, 1, 2, 6, 24, 120, 720, 5040]


def test_recursion_with_a_barrier_is_refused() -> None:
    source = (
        HEADER
        + """
    void deep(uint n) { threadgroup_barrier(mem_flags::mem_none); if (n) deep(n - 1); }
    kernel void go(device uint* out) { deep(out[0]); }"""
    )
    library = compile_shader(source)
    with pytest.raises(EngineError, match="could not be inlined into the kernel"):
        library.go(torch.zeros(1, dtype=torch.int32), threads=1)


ENDLESS = (
    HEADER
    + """
kernel void endless(device volatile uint* flag, uint i [[thread_position_in_grid]]) {
  while (flag[0] == 0) { BODY }
}
"""
)
BODIES = ["", "threadgroup_barrier(mem_flags::mem_none);"]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("threads", [32, 100_000])
def test_kernel_that_never_ends_is_stopped_and_named(
    monkeypatch: pytest.MonkeyPatch, body: str, threads: int
) -> None:
    monkeypatch.setenv("ANYMETAL_TIME_LIMIT", "0.3")
    library = compile_shader(ENDLESS.replace("BODY", body))
    with pytest.raises(KernelTimeout, match=r"kernel 'endless' finished no threadgroup for 0\.3 s"):
        library.endless(torch.zeros(1, dtype=torch.int32), threads=threads, group_size=32)
    library.endless(torch.ones(1, dtype=torch.int32), threads=threads, group_size=32)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("threads", [32, 100_000])
def test_interrupt_stops_a_running_kernel(body: str, threads: int) -> None:
    library = compile_shader(ENDLESS.replace("BODY", body))
    kernel = library.endless
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        kernel(torch.zeros(1, dtype=torch.int32), threads=threads, group_size=32)
    assert time.monotonic() - start < 5
    timer.join()
    kernel(torch.ones(1, dtype=torch.int32), threads=threads, group_size=32)


SUM = (
    HEADER
    + """
kernel void total(device const float* x, device float* out, constant uint& n,
                  uint i [[thread_index_in_threadgroup]],
                  uint row [[threadgroup_position_in_grid]]) {
  threadgroup float partial[4];
  float sum = 0.0f;
  for (uint k = i; k < n; k += 128) sum += x[row * n + k];
  sum = simd_sum(sum);
  if (i % 32 == 0) partial[i / 32] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) out[row] = partial[0] + partial[1] + partial[2] + partial[3];
}
"""
)


def test_launches_from_several_python_threads_are_independent() -> None:
    library = compile_shader(SUM)
    inputs = [torch.randn(300, 1000, generator=torch.Generator().manual_seed(s)) for s in range(8)]

    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.full((300,), float("nan"))
        library.total(x, out, 1000, threads=300 * 128, group_size=128)
        return out

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, inputs))
    for x, out in zip(inputs, results, strict=True):
        assert torch.allclose(out.double(), x.double().sum(1), atol=1e-3)
        assert torch.equal(out, run(x))


def test_kernels_run_in_a_forked_child() -> None:
    program = f"""
    import os, torch
    from anymetal import compile_shader
    library = compile_shader('''{SUM}''')
    x, out = torch.ones(300, 1000), torch.zeros(300)
    run = lambda: library.total(x, out, 1000, threads=300 * 128, group_size=128)
    run()
    child = os.fork()
    if child == 0:
        out.zero_()
        run()
        os._exit(0 if (out == 1000).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    run()
    """
    lines = program.split("\n")
    text = "\n".join(line[4:] if line.startswith("    ") else line for line in lines)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
