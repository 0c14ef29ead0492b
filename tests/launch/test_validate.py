"""Checks on the host before a launch: each fails with the values in its message."""

from __future__ import annotations

import pytest
import torch

from anymetal import compile_shader
from anymetal.errors import LimitError
from anymetal.launch.guarded import GuardedKernel, watched
from anymetal.launch.validate import (
    check_aligned,
    check_dense,
    check_group,
    check_index_range,
    check_tile,
)

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void twice(device const float* x, device float* y, device const float* weight,
                  constant float& factor, uint i [[thread_position_in_grid]]) {
  y[i] = factor * x[i] + weight[i % 8];
}
kernel void total(device float* x, uint i [[thread_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  x[i] = simd_sum(x[i]) + lane;
}
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, GuardedKernel]:
    library = compile_shader(SOURCE)
    return {name: GuardedKernel(getattr(library, name), name) for name in ("twice", "total")}


@pytest.mark.parametrize("size", [1, 33, 1024, (32, 32), (7, 3, 2)])
def test_group_within_the_limit(size: int | tuple[int, ...]) -> None:
    check_group("k", size)


@pytest.mark.parametrize("size", [0, 1025, (32, 33)])
def test_group_past_the_limit(size: int | tuple[int, ...]) -> None:
    with pytest.raises(LimitError, match=r"k: group_size .* has 1 to 1024"):
        check_group("k", size)


def test_group_past_the_kernels_own_limit() -> None:
    with pytest.raises(LimitError, match="1 to 256"):
        check_group("k", 512, limit=256)


def test_collectives_need_whole_simdgroups() -> None:
    check_group("k", 64, collectives=True)
    with pytest.raises(LimitError, match=r"48 threads; .* multiple of 32"):
        check_group("k", 48, collectives=True)


def test_tile() -> None:
    check_tile("k", "columns", 64, 32)
    with pytest.raises(ValueError, match="columns is 65, which is no multiple of the tile of 32"):
        check_tile("k", "columns", 65, 32)


def test_dense() -> None:
    x = torch.zeros(4, 6)
    check_dense("k", x=x, y=x[:2])
    with pytest.raises(ValueError, match=r"argument 'x' of shape \(6, 4\) has strides \(1, 6\)"):
        check_dense("k", x=x.t())


def test_aligned() -> None:
    x = torch.zeros(9)
    check_aligned("k", 16, x=x)
    with pytest.raises(ValueError, match="argument 'y' starts 4 bytes past a multiple of 16"):
        check_aligned("k", 16, x=x, y=x[1:])


def test_index_range() -> None:
    huge = torch.empty(1).expand(2**31)
    check_index_range("k", torch.zeros(3), torch.empty(1).expand(2**31 - 1))
    with pytest.raises(ValueError, match=r"argument 1 .* 2147483648 elements"):
        check_index_range("k", torch.zeros(3), huge)


def test_guarded_kernel_runs(kernels: dict[str, GuardedKernel]) -> None:
    x, y, weight = torch.arange(33.0), torch.empty(33), torch.ones(8)
    kernels["twice"](x, y, weight, 2.0, threads=33, group_size=32)
    assert torch.equal(y, 2 * x + 1)


def test_guarded_kernel_refuses(kernels: dict[str, GuardedKernel]) -> None:
    x, weight = torch.zeros(64), torch.ones(8)
    with pytest.raises(LimitError, match="2048 threads"):
        kernels["twice"](x, x, weight, 2.0, threads=64, group_size=2048)
    with pytest.raises(LimitError, match="multiple of 32"):
        kernels["total"](x, threads=64, group_size=16)
    huge = torch.empty(1).expand(2**31)
    with pytest.raises(ValueError, match="32 bits"):
        kernels["twice"](huge, x, weight, 2.0, threads=64, group_size=32)


def test_watched_launches_are_counted(kernels: dict[str, GuardedKernel]) -> None:
    x, y, weight = torch.arange(64.0), torch.empty(64), torch.ones(8)
    with watched(counting=True) as launches:
        kernels["twice"](x, y, weight, 2.0, threads=64, group_size=32)
    (launched,) = launches
    assert torch.equal(y, 2 * x + 1)
    assert (launched.kernel, launched.group_size) == ("twice", 32)
    assert launched.counts is not None
    # Each thread reads a weight, but there are only eight: the number is not counted at all.
    assert launched.counts.buffer_bytes == {0: 256, 1: 256, 2: 256, 3: 256}
    assert launched.moved_bytes == 256 + 256 + 32


def test_watching_without_counting(kernels: dict[str, GuardedKernel]) -> None:
    x, y, weight = torch.arange(8.0), torch.empty(8), torch.ones(8)
    with watched() as launches:
        kernels["twice"](x, y, weight, 2.0, threads=8, group_size=8)
    kernels["twice"](x, y, weight, 2.0, threads=8, group_size=8)
    assert [launched.moved_bytes for launched in launches] == [None]
