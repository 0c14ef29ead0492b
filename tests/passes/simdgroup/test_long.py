"""The long form of a kernel, for what would be too much for LLVM: fewer copies, shared functions,
and what outlasts a barrier in memory. It computes the same."""

from __future__ import annotations

import ctypes
import re

import pytest
from small_kernels import (
    BUFFERS,
    COMPLETE,
    INDEX,
    PARTIAL,
    VARYING,
    Simdgroup,
    stored,
    vectorised,
    vectorised_with_note,
    words,
)
from test_resume import STOP, SUMS

from anymetal.passes.simdgroup import prepare
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.rules import GroupShape

# for (k = 0; k < x; ++k) { for (j = 0; j < k; ++j) total += odd(x + j) ? j : 100; total += 7; }
NESTED = f"""{VARYING}
  br label %outer
outer:
  %k = phi i32 [ 0, %entry ], [ %k.next, %outer.next ]
  %total = phi i32 [ 0, %entry ], [ %total.next, %outer.next ]
  %more = icmp ult i32 %k, %x
  br i1 %more, label %inner, label %after
inner:
  %j = phi i32 [ 0, %outer ], [ %j.next, %inner.next ]
  %part = phi i32 [ %total, %outer ], [ %sum, %inner.next ]
  %within = icmp ult i32 %j, %k
  br i1 %within, label %body, label %outer.next
body:
  %shifted = add i32 %x, %j
  %odd = trunc i32 %shifted to i1
  br i1 %odd, label %yes, label %no
yes:
  %a = add i32 %part, %j
  br label %inner.next
no:
  %b = add i32 %part, 100
  br label %inner.next
inner.next:
  %sum = phi i32 [ %a, %yes ], [ %b, %no ]
  %j.next = add i32 %j, 1
  br label %inner
outer.next:
  %total.next = add i32 %part, 7
  %k.next = add i32 %k, 1
  br label %outer
after:
  %y = phi i32 [ %total, %outer ]{stored("i32", "%y")}"""


def nested(x: int) -> int:
    total = 0
    for k in range(x):
        total += sum(j if (x + j) % 2 else 100 for j in range(k)) + 7
    return total


@pytest.fixture
def _in_long_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "LONG", 0)


def ran(body: str, values: list[int], threads: int = 32, before: str = "") -> tuple[list[int], int]:
    """What a kernel writes, compiled as it is, and the bytes of its frame."""
    out = words([0] * 64)
    text, note = vectorised_with_note(body, COMPLETE if threads == 32 else PARTIAL, before)
    assert note.is_long
    Simdgroup(threads, is_long=True).run(text, [words(values), out], note.frame_size)
    return list(out), note.frame_size


def copies(text: str) -> set[str]:
    return set(re.findall(r"^(masked\d+)\.", text, re.MULTILINE))


@pytest.mark.parametrize(("shape", "count"), [(COMPLETE, 1), (PARTIAL, 1)])
def test_loops_share_the_masked_copy_of_those_around_them(
    shape: GroupShape, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = vectorised(NESTED, shape)
    monkeypatch.setattr(prepare, "LONG", 0)
    after = vectorised(NESTED, shape)
    assert len(copies(after)) == count < len(copies(before))
    assert len(after) < len(before)


@pytest.mark.usefixtures("_in_long_form")
def test_lanes_that_share_a_copy_compute_the_same() -> None:
    for values in (list(range(32)), [5] * 32, [0] * 31 + [9], [6, 7] * 16):
        assert ran(NESTED, values)[0][:32] == [nested(x) for x in values]
        assert ran(NESTED, values, threads=5)[0][:6] == [*map(nested, values[:5]), 0]


# out[i] = in[x % 64] as 2 bytes, to place i ^ 5 of 2 bytes.
SHORTS = f"""{BUFFERS}{INDEX}
  %index.long = zext i32 %index to i64
  %place = getelementptr i32, ptr %in, i64 %index.long
  %x = load i32, ptr %place, align 4
  %low = and i32 %x, 63
  %low.long = zext i32 %low to i64
  %from = getelementptr i16, ptr %in, i64 %low.long
  %short = load i16, ptr %from, align 2
  %moved = xor i32 %x, 5
  %moved.low = and i32 %moved, 31
  %to.long = zext i32 %moved.low to i64
  %to = getelementptr i16, ptr %out, i64 %to.long
  store i16 %short, ptr %to, align 2
  ret void"""


@pytest.mark.usefixtures("_in_long_form")
def test_short_elements_are_moved_by_functions() -> None:
    text = vectorised(SHORTS)
    assert "@am.gather.i16.2(" in text and "@am.scatter.i16.2(" in text
    values = [(7 * lane + 3) % 32 for lane in range(32)]
    out, _ = ran(SHORTS, values)
    shorts = memoryview(words(values)).cast("B").cast("H")
    written = memoryview((ctypes.c_int32 * len(out))(*out)).cast("B").cast("H")
    assert [written[x ^ 5] for x in values] == [shorts[x] for x in values]


def test_what_outlasts_a_barrier_lies_in_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "LONG", 0)
    text, note = vectorised_with_note(SUMS, before=STOP)
    resumed = re.findall(r"^am\.resume\.\d+:\n(?:  .*\n)+", text, re.MULTILINE)
    assert resumed and all(block.count("\n") == 2 for block in resumed), "a jump and no moves"
    values = list(range(3, 35))
    monkeypatch.undo()
    expected = words([0] * 64)
    text, note = vectorised_with_note(SUMS, before=STOP)
    assert not note.is_long
    Simdgroup().run(text, [words(values), expected], note.frame_size)
    monkeypatch.setattr(prepare, "LONG", 0)
    assert ran(SUMS, values, before=STOP)[0] == list(expected)


def test_the_long_form_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "LONG", 50)
    with pytest.raises(NotVectorisable, match="so long that compiling it takes seconds"):
        vectorised(NESTED, heaviest=100)
    assert vectorised_with_note(NESTED, heaviest=5000)[1].is_long
