"""Loads, selects and stores move bits: every bfloat and half keeps its own on every engine."""

from __future__ import annotations

import pytest
import torch

import anymetal

SOURCE = """
#include <metal_stdlib>
using namespace metal;
template <typename T>
struct Pair { T first, second; };
template <typename T>
kernel void move(device const T* x, device T* y, device const uchar* which,
                 device vec<T, 4>* wide, device Pair<T>* pairs,
                 uint i [[thread_position_in_grid]], uint at [[thread_index_in_threadgroup]]) {
  threadgroup T tile[64];
  T other = x[i ^ 1];
  T taken = which[i] == 0 ? x[i] : which[i] == 1 ? other : select(x[i], other, which[i] > 2);
  for (uint k = 0; k < which[i]; k++) {
    T kept = taken;
    if (k & 1) taken = other;
    other = kept;
  }
  tile[at] = taken;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = tile[at ^ 2];
  thread T mine[4] = {x[i], other, taken, x[i ^ 3]};
  wide[i] = vec<T, 4>(mine[which[i] & 3], mine[0], mine[1], mine[3]).wzyx;
  Pair<T> pair = {taken, x[i]};
  if (which[i] == 3) pair = {x[i], taken};
  pairs[i] = pair;
}
template [[host_name("move_bfloat")]] kernel void move<bfloat>(
    device const bfloat*, device bfloat*, device const uchar*, device bfloat4*,
    device Pair<bfloat>*, uint, uint);
template [[host_name("move_half")]] kernel void move<half>(
    device const half*, device half*, device const uchar*, device half4*, device Pair<half>*, uint,
    uint);
template [[host_name("move_ushort")]] kernel void move<ushort>(
    device const ushort*, device ushort*, device const uchar*, device ushort4*,
    device Pair<ushort>*, uint, uint);
"""


def moved(kind: str) -> list[torch.Tensor]:
    bits = torch.arange(65536).to(torch.int32).to(torch.uint16).view(torch.int16)
    which = torch.arange(65536, dtype=torch.int64).mul(2654435761).bitwise_right_shift(7)
    found = [torch.zeros(65536 * count, dtype=torch.int16) for count in (1, 4, 2)]
    kernel = getattr(anymetal.compile_shader(SOURCE), f"move_{kind}")
    kernel(
        *(bits, found[0], which.remainder(4).to(torch.uint8), *found[1:]),
        threads=65536,
        group_size=64,
    )
    return found


@pytest.mark.parametrize("engine", ["simdgroup", "coroutine"])
def test_all_16_bit_floats_are_moved_as_they_are(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", engine)
    wanted = moved("ushort")
    for kind in ("bfloat", "half"):
        for number, (found, bits) in enumerate(zip(moved(kind), wanted, strict=True)):
            wrong = (found != bits).nonzero().flatten().tolist()
            assert not wrong, (kind, number, len(wrong), hex(bits[wrong[0]].item() & 0xFFFF))


COMPARED = """
#include <metal_stdlib>
using namespace metal;
kernel void smaller(device const bfloat* x, device const uchar* at, device bfloat* y,
                    device bfloat* copied, uint i [[thread_position_in_grid]]) {
  bfloat one = x[i], other = x[i * 2 + at[i]];
  bool is_nan = (as_type<ushort>(one) & 0x7FFF) > 0x7F80;
  y[i] = is_nan || one < other ? one : other;
  if (one > other) copied[i] = one;
}
"""


@pytest.mark.parametrize("engine", ["simdgroup", "coroutine"])
def test_a_bfloat_that_is_compared_too_keeps_its_bits(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded one by one: LLVM made floats of them, and rounded them back."""
    monkeypatch.setenv("ANYMETAL_ENGINE", engine)
    count = 997
    bits = torch.arange(3 * count + 9).mul(2654435761).bitwise_right_shift(9)
    bits[::3] &= 0x807F  # denormals
    bits = bits.to(torch.uint16).view(torch.int16)
    at = torch.arange(count).mul(7).remainder(5).to(torch.uint8)
    y, copied = torch.zeros(count, dtype=torch.int16), torch.zeros(count, dtype=torch.int16)
    kernel = anymetal.compile_shader(COMPARED).smaller
    kernel(bits, at, y, copied, threads=count, group_size=64)
    one, other = bits[:count], bits[torch.arange(count) * 2 + at]
    first, second = one.view(torch.bfloat16), other.view(torch.bfloat16)
    assert torch.equal(y, torch.where(first.isnan() | (first < second), one, other))
    assert torch.equal(copied, torch.where(first > second, one, torch.zeros_like(one)))
