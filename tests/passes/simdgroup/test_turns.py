"""All simdgroups of a threadgroup in one call, each in its turn."""

from __future__ import annotations

import pytest
from small_kernels import BUFFERS, INDEX, VARYING, Simdgroup, stored, vectorised_with_note, words

STOP = "declare void @am_stop(i32)"
WAIT = "\n  call void @am_stop(i32 1)"

# Each simdgroup waits as often as its first lane's number in %in says; then each lane has x + that.
AS_OFTEN_AS_IT_LIKES = f"""{BUFFERS}{INDEX}
  %simd = lshr i32 %index, 5
  %first = shl i32 %simd, 5
  %first.long = zext i32 %first to i64
  %count.place = getelementptr i32, ptr %in, i64 %first.long
  %count = load i32, ptr %count.place, align 4
  %x.place = getelementptr i32, ptr %in, i64 %i
  %x = load i32, ptr %x.place, align 4
  br label %loop
loop:
  %n = phi i32 [ 0, %entry ], [ %next, %more ]
  %again = icmp ult i32 %n, %count
  br i1 %again, label %more, label %done
more:{WAIT}
  %next = add i32 %n, 1
  br label %loop
done:
  %sum = add i32 %x, %n{stored("i32", "%sum")}"""


def run(body: str, values: list[int], count: int) -> tuple[list[int], int]:
    """What simdgroups write, and how often any of them waits."""
    out = words([0] * (32 * count + 32))
    text, note = vectorised_with_note(body, before=STOP)
    waits = Simdgroup(count=count).run(text, [words(values), out], note.frame_size)
    return list(out), waits


@pytest.mark.parametrize("often", [[0], [3], [2, 0, 5], [0, 0, 1, 7, 1], [1] * 32])
def test_each_waits_as_often_as_it_likes(often: list[int]) -> None:
    values = [count if lane == 0 else lane for count in often for lane in range(32)]
    out, waits = run(AS_OFTEN_AS_IT_LIKES, values, len(often))
    counts = [count for count in often for _ in range(32)]
    expected = [value + count for value, count in zip(values, counts, strict=True)]
    assert out == [*expected, *[0] * 32]
    assert waits == max(often)


def test_nobody_passes_a_barrier_before_all_have_reached_it() -> None:
    """Each lane reads what a lane of the next simdgroup wrote before the barrier."""
    count = 5
    body = f"""{VARYING}
  %place = getelementptr i32, ptr %out, i64 %i
  %twice = add i32 %x, %x
  store i32 %twice, ptr %place, align 4{WAIT}
  %other = add i32 %index, 32
  %over = icmp uge i32 %other, {32 * count}
  %back = sub i32 %other, {32 * count}
  %where = select i1 %over, i32 %back, i32 %other
  %where.long = zext i32 %where to i64
  %there = getelementptr i32, ptr %out, i64 %where.long
  %read = load i32, ptr %there, align 4{WAIT}{stored("i32", "%read")}"""
    values = list(range(1, 32 * count + 1))
    out, waits = run(body, values, count)
    assert out[: 32 * count] == [2 * value for value in values[32:] + values[:32]]
    assert waits == 2
