"""Checks on the host before a launch: each fails with the values in its message."""

from __future__ import annotations

import pytest
import torch

from anymetal import check, compile_shader
from anymetal.errors import LimitError
from anymetal.launch.guarded import GuardedKernel, check_index_range, watched
from anymetal.launch.shape import group_size_fault

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
    assert group_size_fault(size) is None


@pytest.mark.parametrize("size", [0, 1025, (32, 33)])
def test_group_past_the_limit(size: int | tuple[int, ...]) -> None:
    assert "threads; a threadgroup has 1 to 1024" in str(group_size_fault(size))


@pytest.mark.parametrize("size", ["64", 64.0, True, (32, 2.0), None])
def test_group_size_of_another_type(size: object) -> None:
    assert "expected an int or a sequence of ints" in str(group_size_fault(size))


def test_group_past_the_kernels_own_limit() -> None:
    assert "1 to 256" in str(group_size_fault(512, limit=256))


def test_collectives_need_whole_simdgroups() -> None:
    assert group_size_fault(64, whole_simdgroups=True) is None
    fault = group_size_fault(48, whole_simdgroups=True)
    assert "48 threads; simdgroup functions are used, so it must be a multiple of 32" in str(fault)


def test_group_size_is_judged_again_where_it_is_another_one(
    kernels: dict[str, GuardedKernel],
) -> None:
    total, x, sizes = kernels["total"], torch.zeros(64), [32, 2]
    for fine in (64, 64, (32, 2), (32, 2), sizes, sizes):
        total(x, threads=64 if fine == 64 else (32, 2), group_size=fine)
    sizes[0] = 31
    for odd in (sizes, 64.0, (32, 2.0), 48, True):
        with pytest.raises(LimitError, match="total: group_size is"):
            total(x, threads=64, group_size=odd)


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


def test_launches_in_turn(kernels: dict[str, GuardedKernel]) -> None:
    x, weight = torch.ones(5), torch.arange(8.0)
    launches = [((x, x, weight, factor), 5) for factor in (2.0, 3.0, -1.0)]
    kernels["twice"].in_turn(launches, 32)
    expected = torch.ones(5)
    for factor in (2.0, 3.0, -1.0):
        expected = factor * expected + weight[:5]
    assert torch.equal(x, expected)
    with watched() as seen:
        kernels["twice"].in_turn(launches, 32)
    assert [(launch.kernel, launch.threads) for launch in seen] == [("twice", 5)] * 3
    with check() as report:
        kernels["twice"].in_turn([((x, x[:3], weight, 1.0), 5)], 32)
    assert report.findings


def test_launches_in_turn_are_checked_before_the_first_runs(
    kernels: dict[str, GuardedKernel],
) -> None:
    x, weight = torch.ones(5), torch.zeros(8)
    right, wrong = (x, x, weight, 2.0), (x, x, weight, object())
    with pytest.raises(RuntimeError, match="argument 'factor'"):
        kernels["twice"].in_turn([(right, 5), (wrong, 5)], 32)
    with pytest.raises(LimitError, match="1025"):
        kernels["twice"].in_turn([(right, 5)], 1025)
    assert torch.equal(x, torch.ones(5))
