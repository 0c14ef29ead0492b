"""Atomics: locked, but for updates of memory that one simdgroup after the other works on."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from small_kernels import (
    BUFFERS,
    INDEX,
    PARTIAL,
    VARYING,
    kernel_of,
    results,
    stored,
    vectorised,
)

from anymetal.passes.simdgroup.analysis import Analysis
from anymetal.passes.simdgroup.atomics import threadgroup_pointers
from anymetal.passes.simdgroup.rules import GroupShape

THREADGROUP = """
  %group.place = getelementptr i8, ptr %self, i64 32
  %group = load ptr, ptr %group.place, align 8
  %memory.place = getelementptr i8, ptr %group, i64 72
  %memory = load ptr, ptr %memory.place, align 8
  %second.place = getelementptr i8, ptr %group, i64 80
  %second = load ptr, ptr %second.place, align 8"""
PLACE = """
  %x.place = getelementptr i32, ptr %in, i64 %i
  %x = load i32, ptr %x.place, align 4
  %step = zext i32 %x to i64
  %p = getelementptr i32, ptr BASE, i64 %step"""


def updating(base: str, operation: str = "add", kind: str = "i32", value: str = "1") -> str:
    update = f"\n  %old = atomicrmw {operation} ptr %p, {kind} {value} monotonic, align 4"
    place = PLACE.replace("BASE", base)
    return BUFFERS + INDEX + THREADGROUP + place + update + "\n  ret void"


def test_updates_of_threadgroup_memory_take_no_lock() -> None:
    text = vectorised(updating("%memory"))
    assert "atomicrmw" not in text
    assert text.count("add i32") >= 32, "one addition a lane"


def test_updates_of_device_memory_do() -> None:
    assert "atomicrmw add" in vectorised(updating("%out"))


def test_under_a_mask_lanes_take_turns_in_a_loop() -> None:
    text = vectorised(updating("%second"), PARTIAL)
    assert "atomicrmw" not in text
    assert "llvm.cttz.i32" in text


@pytest.mark.parametrize("operation", ["sub", "and", "or", "xor", "xchg"])
def test_integer_operations(operation: str) -> None:
    assert "atomicrmw" not in vectorised(updating("%memory", operation))


@pytest.mark.parametrize(
    ("operation", "compared"),
    [("max", "icmp sgt"), ("min", "icmp slt"), ("umax", "icmp ugt"), ("umin", "icmp ult")],
)
def test_minima_and_maxima_compare(operation: str, compared: str) -> None:
    text = vectorised(updating("%memory", operation))
    assert text.count(compared) == 32


def test_floats_are_added() -> None:
    assert vectorised(updating("%memory", "fadd", "float", "1.0")).count("fadd float") == 32


def test_an_operation_without_a_plain_form_stays_locked() -> None:
    assert "atomicrmw uinc_wrap" in vectorised(updating("%memory", "uinc_wrap"))


@pytest.mark.parametrize("place", ["%out", "%memory"])
def test_all_lanes_at_one_place_make_one_update(place: str) -> None:
    head = BUFFERS + INDEX + THREADGROUP
    body = f"""{head}
  %x.place = getelementptr i32, ptr %in, i64 %i
  %x = load i32, ptr %x.place, align 4
  %old = atomicrmw umax ptr {place}, i32 %x monotonic, align 4
  ret void"""
    text = vectorised(body)
    assert text.count("atomicrmw umax") == (place == "%out")
    assert "llvm.cttz" not in text, "no loop over the lanes"
    real = body.replace("umax", "fadd").replace(
        "load i32, ptr %x.place", "load float, ptr %x.place"
    )
    assert "llvm.cttz" in vectorised(real.replace(", i32 %x mono", ", float %x mono"), PARTIAL)


UNSEEN = f"""{VARYING}
  %bin = and i32 %x, 7
  %step = zext i32 %bin to i64
  %p = getelementptr i32, ptr %out, i64 %step
  %half = ashr i32 %x, 3"""


@pytest.mark.parametrize(
    ("operation", "neutral", "result"),
    [
        ("add", 0, lambda old, new: old + new),
        ("sub", 0, lambda old, new: old - new),
        ("or", 0, lambda old, new: old | new),
        ("xor", 0, lambda old, new: old ^ new),
        ("and", -1, lambda old, new: old & new),
        ("max", -(1 << 31), max),
        ("min", (1 << 31) - 1, min),
    ],
)
def test_lanes_that_change_nothing_take_no_lock(
    operation: str, neutral: int, result: Callable[[int, int], int]
) -> None:
    body = f"""{UNSEEN}
  %even = and i32 %half, 1
  %is.even = icmp eq i32 %even, 0
  %given = select i1 %is.even, i32 {neutral}, i32 %half
  %old = atomicrmw {operation} ptr %p, i32 %given monotonic, align 4
  ret void"""
    values = [(lane * 37 % 91 - 40) * 8 + lane * 5 % 8 for lane in range(32)]
    expected = [0] * 8
    for value in values:
        given = neutral if value >> 3 & 1 == 0 else value >> 3
        expected[value & 7] = result(expected[value & 7], given)
    text = vectorised(body)
    assert re.search(rf"icmp ne <32 x i32> %v\.\d+, (splat \(i32 {neutral}\)|zero)", text)
    assert results(body, values, count=8) == expected


def test_lanes_take_turns_where_a_result_is_used() -> None:
    body = f"""{UNSEEN}
  %old = atomicrmw add ptr %p, i32 %half monotonic, align 4{stored("i32", "%old")}"""
    assert "icmp ne <32 x i32>" not in vectorised(body)


def test_pointers_stay_in_threadgroup_memory_through_loops_and_choices() -> None:
    body = f"""entry:{BUFFERS}{INDEX}{THREADGROUP}
  %c = icmp eq i32 %index, 3
  %either = select i1 %c, ptr %memory, ptr %second
  %mixed = select i1 %c, ptr %memory, ptr %out
  br label %loop
loop:
  %walk = phi ptr [ %either, %entry ], [ %next, %loop ]
  %stray = phi ptr [ %memory, %entry ], [ %astray, %loop ]
  %next = getelementptr i8, ptr %walk, i64 4
  %astray = select i1 %c, ptr %stray, ptr %mixed
  br i1 %c, label %loop, label %end
end:
  ret void"""
    kernel = kernel_of(body)
    inside = threadgroup_pointers(kernel, Analysis(kernel, GroupShape()).facts)
    assert inside == {"%memory", "%second", "%either", "%walk", "%next"}
