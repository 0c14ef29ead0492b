"""Stores past the caches: which of a kernel's stores take that way, and what they write."""

from __future__ import annotations

import pytest
import torch
from small_kernels import vectorised

import anymetal
from anymetal.machine import processor

# Rows of %out, each of %count numbers, by the lanes of a threadgroup of %size threads.
ROW = """
  %in = load ptr, ptr %buffers, align 8
  %out.place = getelementptr i8, ptr %buffers, i64 8
  %out = load ptr, ptr %out.place, align 8
  %size.place = getelementptr i8, ptr %buffers, i64 16
  %sizes = load ptr, ptr %size.place, align 8
  %size = load i32, ptr %sizes, align 4
  %index.place = getelementptr i8, ptr %self, i64 20
  %index = load i32, ptr %index.place, align 4
  {first}
  br label %loop
loop:
  %i = phi i32 [ %index, %entry ], [ %next, %loop ]
  %wide = zext i32 %i to i64
  %from = getelementptr {kind}, ptr %in, i64 %wide
  %x = load {kind}, ptr %from, align 1
  %to = getelementptr {kind}, ptr %out, i64 %wide
  {inside}
  store {kind} %x, ptr %to, align 1
  %next = add nuw i32 %i, %size
  %again = icmp ult i32 %next, 4096
  br i1 %again, label %loop, label %done
done:
  ret void"""

pytestmark = pytest.mark.skipif(not processor.is_x86(), reason="x86 alone has such stores here")


def is_streamed(kind: str = "float", first: str = "", inside: str = "") -> bool:
    return "!nontemporal" in vectorised(ROW.format(kind=kind, first=first, inside=inside))


@pytest.mark.parametrize("kind", ["float", "i32", "half", "i64"])
def test_a_result_that_is_only_written(kind: str) -> None:
    assert is_streamed(kind)


def test_lanes_that_fill_half_a_line() -> None:
    assert not is_streamed("i8")


def test_a_result_that_is_read_as_well() -> None:
    assert not is_streamed(inside="%seen = load float, ptr %out, align 4")
    read = "%read = load ptr, ptr %out.place, align 8\n  %seen = load float, ptr %read, align 4"
    assert not is_streamed(first=read)


def test_a_read_that_may_be_of_anything() -> None:
    chosen = "%any = select i1 %flag, ptr %in, ptr %out\n  %seen = load float, ptr %any, align 4"
    assert not is_streamed(first=f"%flag = trunc i32 %size to i1\n  {chosen}")


@pytest.mark.parametrize(
    "inside",
    [
        "%old = atomicrmw add ptr %sizes, i32 1 monotonic, align 4",
        "fence acq_rel",
        "%seen = load atomic i32, ptr %sizes monotonic, align 4",
    ],
)
def test_kernels_that_speak_with_others(inside: str) -> None:
    assert not is_streamed(inside=inside)


SCALED = """
#include <metal_stdlib>
using namespace metal;
kernel void scaled(device const T* x, device T* y, constant uint& columns,
                   uint row [[threadgroup_position_in_grid]],
                   uint in_group [[thread_index_in_threadgroup]],
                   uint group_size [[threads_per_threadgroup]]) {
  threadgroup T first;
  if (in_group == 0) first = x[row * columns];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = in_group; i < columns; i += group_size)
    y[row * columns + i] = x[row * columns + i] * T(2) + first;
}
"""


@pytest.mark.parametrize(
    ("kind", "dtype", "columns", "shift"),
    [("float", torch.float32, 1024, 0), ("half", torch.float16, 2041, 1)],
)
def test_more_than_the_caches_hold(kind: str, dtype: torch.dtype, columns: int, shift: int) -> None:
    """33 MiB; rows of an odd length, and results that begin in the middle of a line."""
    rows = (33 << 20) // (columns * dtype.itemsize)
    x = (torch.arange(rows * columns, dtype=torch.int32) % 501).to(dtype).view(rows, columns)
    whole = torch.full((rows * columns + 2 * shift,), -1.0, dtype=dtype)
    y = whole[shift : shift + rows * columns].view(rows, columns)
    kernel = anymetal.compile_shader(
        SCALED.replace("T ", f"{kind} ").replace("T*", f"{kind}*").replace("T(", f"{kind}(")
    ).scaled
    kernel(x, y, columns, threads=rows * 128, group_size=128)
    assert torch.equal(y, x * 2 + x[:, :1])
    assert (whole[:shift] == -1).all() and (whole[shift + rows * columns :] == -1).all()
