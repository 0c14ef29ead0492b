"""The grid of a launch: defaults, limits, and the smaller threadgroups at its edges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from anymetal import ShaderLibrary, compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void sizes(device uint* out, uint3 group [[threads_per_threadgroup]],
                  uint3 nominal [[dispatch_threads_per_threadgroup]],
                  uint3 grid [[threads_per_grid]], uint3 groups [[threadgroups_per_grid]],
                  uint3 at [[thread_position_in_grid]]) {
  if (at.x + at.y + at.z == 0) {
    out[0] = grid.x; out[1] = grid.y; out[2] = grid.z;
    out[3] = nominal.x; out[4] = nominal.y; out[5] = nominal.z;
    out[6] = groups.x; out[7] = groups.y; out[8] = groups.z;
  }
}
kernel void count(device atomic_uint* counts, constant uint3& grid,
                  uint3 at [[thread_position_in_grid]]) {
  uint place = (at.z * grid.y + at.y) * grid.x + at.x;
  atomic_fetch_add_explicit(&counts[place], 1, memory_order_relaxed);
}
kernel void group_sizes(device uint* out, uint i [[thread_position_in_grid]],
                        uint size [[threads_per_threadgroup]]) {
  out[i] = size;
}
[[max_total_threads_per_threadgroup(64)]]
kernel void limited(device float* out, uint i [[thread_position_in_grid]],
                    uint size [[threads_per_threadgroup]]) {
  out[i] = size;
}
kernel void nothing() {}
"""


@pytest.fixture(scope="module")
def lib() -> ShaderLibrary:
    return compile_shader(SOURCE)


@pytest.fixture(scope="module")
def sizes(lib: ShaderLibrary) -> Callable[..., list[list[int]]]:
    """Grid, threadgroup and number of threadgroups of a launch."""

    def measure(out_size: int = 9, **keywords: object) -> list[list[int]]:
        out = torch.zeros(out_size, dtype=torch.int32)
        lib.sizes(out, **keywords)
        return out[:9].reshape(3, 3).tolist()

    return measure


def test_threads_default_to_the_first_tensors_size(sizes: Callable[..., list[list[int]]]) -> None:
    assert sizes(out_size=50)[0] == [50, 1, 1]


def test_threads_default_skips_numbers(lib: ShaderLibrary) -> None:
    counts = torch.zeros(6, dtype=torch.int32)
    lib.count(counts, [6, 1, 1], torch.zeros(99), arg_casts="int32")
    assert counts.tolist() == [1] * 6


@pytest.mark.parametrize(
    ("threads", "grid"),
    [
        (7, [7, 1, 1]),
        ((7,), [7, 1, 1]),
        ([7, 3], [7, 3, 1]),
        ((7, 3, 2), [7, 3, 2]),
        (torch.Size([4, 5]), [4, 5, 1]),
        (np.int64(9), [9, 1, 1]),
        ((np.int32(9), True), [9, 1, 1]),
    ],
)
def test_threads_are_an_int_or_a_sequence(
    sizes: Callable[..., list[list[int]]], threads: object, grid: list[int]
) -> None:
    assert sizes(threads=threads)[0] == grid


@pytest.mark.parametrize(
    ("threads", "group"),
    [
        (100, [100, 1, 1]),
        (5000, [1024, 1, 1]),
        ((100, 3), [1024, 1, 1]),
        ((2, 2, 2), [1024, 1, 1]),
    ],
)
def test_group_size_default(
    sizes: Callable[..., list[list[int]]], threads: object, group: list[int]
) -> None:
    assert sizes(threads=threads)[1] == group


def test_group_size_default_is_the_kernels_own_limit(lib: ShaderLibrary) -> None:
    out = torch.zeros(200)
    lib.limited(out)
    assert out.tolist() == [64] * 192 + [8] * 8
    assert lib.limited.max_threads_per_threadgroup == 64


def test_threads_count_threads_not_groups(sizes: Callable[..., list[list[int]]]) -> None:
    assert sizes(threads=(100, 9), group_size=(32, 4)) == [[100, 9, 1], [32, 4, 1], [4, 3, 1]]


@pytest.mark.parametrize("threads", [(1,), (31,), (32,), (33,), (257,), (7, 11), (5, 3, 13)])
@pytest.mark.parametrize("group", [1, 2, 3, 8])
def test_every_thread_runs_once(lib: ShaderLibrary, threads: tuple[int, ...], group: int) -> None:
    grid = [*threads, 1, 1][:3]
    counts = torch.zeros(int(np.prod(grid)), dtype=torch.int32)
    lib.count(counts, grid, threads=threads, group_size=[group] * len(threads), arg_casts="int32")
    assert counts.tolist() == [1] * len(counts)


def test_edge_threadgroups_are_smaller(lib: ShaderLibrary) -> None:
    out = torch.zeros(10, dtype=torch.int32)
    lib.group_sizes(out, threads=10, group_size=4)
    assert out.tolist() == [4] * 8 + [2] * 2


@pytest.mark.parametrize("threads", [0, (0, 4), (4, 0, 4)])
def test_no_threads_run_nothing(lib: ShaderLibrary, threads: object) -> None:
    counts = torch.zeros(4, dtype=torch.int32)
    lib.count(counts, [4, 4, 4], threads=threads, arg_casts="int32")
    assert counts.tolist() == [0] * 4


def test_undefined_threads(lib: ShaderLibrary) -> None:
    text = "nothing: Number of threads is undefined or has wrong dimension"
    with pytest.raises(RuntimeError, match=text):
        lib.nothing()
    for threads in ((), (1, 1, 1, 1)):
        with pytest.raises(RuntimeError, match=text):
            lib.nothing(threads=threads)


def test_lengths_must_match(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match="must have the same number of dimensions"):
        lib.nothing(threads=(4, 4), group_size=4)


@pytest.mark.parametrize("group_size", [1025, (1025,)])
def test_group_size_over_the_limit(lib: ShaderLibrary, group_size: object) -> None:
    with pytest.raises(ValueError, match="Threadgroup size exceeds 1024 limit"):
        lib.nothing(threads=4, group_size=group_size)


def test_group_size_product_over_the_limit(lib: ShaderLibrary) -> None:
    with pytest.raises(ValueError, match=r"Threadgroup size exceeds 1024 limit.*2048 threads"):
        lib.nothing(threads=(64, 64), group_size=(32, 64))
    with pytest.raises(ValueError, match="limited: Threadgroup size exceeds 64 limit"):
        lib.limited(torch.zeros(65), group_size=65)


def test_group_size_of_nothing(lib: ShaderLibrary) -> None:
    with pytest.raises(ValueError, match="has no threads"):
        lib.nothing(threads=4, group_size=0)


@pytest.mark.parametrize("threads", ["8", 2.0, (2.5,), None])
def test_threads_of_another_type(lib: ShaderLibrary, threads: object) -> None:
    with pytest.raises(RuntimeError, match=r"pass an int|undefined"):
        lib.nothing(threads=threads)


@pytest.mark.parametrize("threads", [-1, 2**32])
def test_threads_out_of_range(lib: ShaderLibrary, threads: int) -> None:
    with pytest.raises(ValueError, match="from 0 to"):
        lib.nothing(threads=threads)
