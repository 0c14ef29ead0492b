"""Simdgroup matrices on an NVIDIA GPU: which instructions products and loads become."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.nouns import Source

# Two rows and two columns of matrices, two steps along k; STRIDE elements from row to row.
SOURCE = """
#include <metal_stdlib>
using namespace metal;

template <typename T, typename From>
void multiply(From a, From b, device float* c, bool turned) {
  simdgroup_float8x8 sums[2][2];
  for (uint i = 0; i < 4; ++i) sums[i / 2][i % 2] = make_filled_simdgroup_matrix<float, 8, 8>(0);
#pragma unroll
  for (uint k = 0; k < 16; k += 8) {
    simdgroup_matrix<T, 8, 8> left[2], right[2];
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      simdgroup_load(left[i], a + i * 8 * STRIDE + k, STRIDE);
      simdgroup_load(right[i], b + (turned ? i * 8 * STRIDE + k : k * STRIDE + i * 8), STRIDE, 0,
                     turned);
    }
#pragma unroll
    for (uint i = 0; i < 4; ++i)
      simdgroup_multiply_accumulate(sums[i / 2][i % 2], left[i / 2], right[i % 2],
                                    sums[i / 2][i % 2]);
    if (USED) simdgroup_store(sums[0][0], c + 64 * k, 8);
  }
#pragma unroll
  for (uint i = 0; i < 4; ++i) simdgroup_store(sums[i / 2][i % 2], c + i * 64, 8);
}

template <typename T>
[[kernel]] void shared(device const T* x, device float* c, uint i [[thread_index_in_threadgroup]]) {
  threadgroup T tiles[2 * 16 * STRIDE];
  for (uint j = i; j < 2 * 16 * STRIDE; j += 32) tiles[j] = x[j];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  multiply<T>((threadgroup const T*)tiles, (threadgroup const T*)tiles + 16 * STRIDE, c, TURNED);
}
template [[host_name("shared_half")]] [[kernel]] decltype(shared<half>) shared<half>;
template [[host_name("shared_float")]] [[kernel]] decltype(shared<float>) shared<float>;

kernel void direct(device const bfloat* x, device float* c) {
  multiply<bfloat>(x, x + 16 * STRIDE, c, TURNED);
}
kernel void filled(device const half* x, device float* c) {
  simdgroup_half8x8 left, right = make_filled_simdgroup_matrix<half, 8, 8>(2.0h);
  simdgroup_load(left, x);
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, c, 8);
}
kernel void direct_float(device const float* x, device float* c) {
  multiply<float>(x, x + 16 * STRIDE, c, TURNED);
}
"""


def instructions(
    kernel: str, stride: int = 24, turned: bool = False, used: bool = False
) -> Counter:
    """How often the PTX of a kernel has each instruction that matters here."""
    defines = {"STRIDE": stride, "TURNED": int(turned), "USED": int(used)}
    source = Source(SOURCE, defines=tuple((k, str(v)) for k, v in defines.items()))
    made = Compiler(source).compile(kernel, {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    pattern = r"mma\.sync\.aligned\.(m16n8k\d+)|ldmatrix\S+\.(x\d)(\.trans)?|(movmatrix|shfl)"
    return Counter("".join(found) for found in re.findall(pattern, made.ptx))


@pytest.mark.parametrize("turned", [False, True])
def test_four_products_are_one_instruction(turned: bool) -> None:
    fetches = {"x4": 2} if turned else {"x4": 1, "x4.trans": 1}
    assert instructions("shared_half", turned=turned) == {"m16n8k16": 2, **fetches}


def test_rows_that_are_not_aligned_are_read_by_their_lanes() -> None:
    assert instructions("shared_half", stride=20) == {"m16n8k16": 2, "movmatrix": 4}


def test_matrices_of_device_memory_are_read_by_their_lanes() -> None:
    assert instructions("direct") == {"m16n8k16": 2, "movmatrix": 4}


def test_a_matrix_of_one_number_can_be_on_the_right() -> None:
    assert instructions("filled") == {"m16n8k8": 1, "movmatrix": 1}


def test_a_sum_that_is_used_is_there_before_the_next_product() -> None:
    found = instructions("shared_half", used=True)
    # sums[0][0] once a step; sums[1][0] has no partner then, the other two have each other.
    assert found["m16n8k8"] == 2
    assert found["m16n8k16"] == 2


def test_floats_are_read_where_they_lie_or_exchanged() -> None:
    assert instructions("shared_float") == {}
    assert instructions("direct_float") == {"shfl": 8 * 24}
