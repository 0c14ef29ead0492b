"""Loops in which each lane walks along a row of its own."""

from __future__ import annotations

import re

import pytest
from small_kernels import BUFFERS, INDEX, LANE, results, stored, vectorised


def walk(turns: int, step: int = 1, bound: str = "eq", start: int = 0) -> str:
    """Each lane: the sum of its row's words, each times 3, once more what it was before."""
    targets = "label %done, label %loop" if bound == "eq" else "label %loop, label %done"
    return f"""{LANE}{BUFFERS}{INDEX}
  %row = mul i32 %lane, 20
  %at = zext i32 %row to i64
  %p = getelementptr i32, ptr %in, i64 %at
  br label %loop
loop:
  %n = phi i64 [ {start}, %entry ], [ %next, %loop ]
  %sum = phi i32 [ 1, %entry ], [ %new, %loop ]
  %before = phi i32 [ 0, %entry ], [ %sum, %loop ]
  %q = getelementptr i32, ptr %p, i64 %n
  %x = load i32, ptr %q, align 4
  %short = trunc i64 %n to i32
  %times = mul i32 %x, %short
  %more = add i32 %times, %before
  %new = add i32 %sum, %more
  %next = add nuw nsw i64 %n, {step}
  %end = icmp {bound} i64 %next, {turns}
  br i1 %end, {targets}
done:
  %last = phi i32 [ %new, %loop ]{stored("i32", "%last")}"""


def expected(values: list[int], numbers: range) -> list[int]:
    sums = []
    for lane in range(32):
        total, before = 1, 0
        for n in numbers:
            total, before = total + values[20 * lane + n] * n + before, total
        sums.append(total)
    return sums


VALUES = [number * 37 % 11 for number in range(32 * 20)]


@pytest.mark.parametrize(("start", "turns"), [(0, 4), (0, 12), (4, 16), (1, 9)])
@pytest.mark.parametrize("bound", ["eq", "ne"])
def test_four_words_of_each_row_are_one_load(start: int, turns: int, bound: str) -> None:
    body = walk(turns, bound=bound, start=start)
    text = vectorised(body)
    assert "llvm.masked.gather" not in text
    assert len(re.findall(r"= load <4 x i32>, ptr", text)) == 32
    assert results(body, VALUES)[:32] == expected(VALUES, range(start, turns))


@pytest.mark.parametrize(("step", "turns"), [(1, 6), (2, 8)])
def test_other_loops_stay_as_they_are(step: int, turns: int) -> None:
    body = walk(turns, step)
    assert "llvm.masked.gather" in vectorised(body)
    assert results(body, VALUES)[:32] == expected(VALUES, range(0, turns, step))


def test_a_loop_that_uses_its_own_end() -> None:
    body = walk(8).replace("%sum, %loop ]\n  %q", "%flag, %loop ]\n  %q")
    body = body.replace("  br i1 %end", "  %flag = select i1 %end, i32 5, i32 %sum\n  br i1 %end")
    assert results(body, VALUES)[:32] == expected(VALUES, range(8))


def test_a_loop_of_which_more_than_its_last_results_is_used() -> None:
    body = walk(8).replace("%last = phi i32 [ %new, %loop ]", "%last = phi i32 [ %sum, %loop ]")
    assert results(body, VALUES)[:32] == expected(VALUES, range(7))
