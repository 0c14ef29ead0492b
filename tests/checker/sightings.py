"""Findings as the checker makes them, for the tests of what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anymetal.checker.finding import Finding, Launched, Place
from anymetal.nouns import Position

FILE = "kernels/softmax_rows.metal"


def place(line: int, excerpt: str, access: str, thread: int = 0, group: int = 0) -> Place:
    """Where a thread of a one-dimensional launch stood."""
    position = Position(FILE, line, len(excerpt) - len(excerpt.lstrip()) + 1)
    return Place(position, excerpt, access, (thread, 0, 0), (group, 0, 0), thread % 32)


WRITE = place(36, "    partial[simd] = total;", "write", thread=96)
READ = place(41, "        sum += partial[i];", "read", thread=5)


def race(**changes: Any) -> Finding:
    """A write and a read of a threadgroup array without a barrier between."""
    finding = Finding(
        kind="race",
        severity="error",
        kernel="softmax_rows",
        message="race on threadgroup 'partial' element 3",
        place=READ,
        other=WRITE,
        buffer="partial",
        index=3,
        space="threadgroup",
        launch=Launched(2, Position("train.py", 7, 1), "tests/test_rows.py::test_rows[5]"),
    )
    return replace(finding, **changes)


def overrun(**changes: Any) -> Finding:
    """A write past the end of a tensor."""
    finding = Finding(
        kind="out_of_bounds",
        severity="error",
        kernel="fill",
        message="write of 4 bytes outside device 'out', at element 1200",
        place=place(7, "    out[in_grid] = value;", "write", thread=176, group=4),
        buffer="out",
        index=1200,
        space="device",
    )
    return replace(finding, **changes)


def unwritten(**changes: Any) -> Finding:
    """A warning, at a parameter, by no thread."""
    position = Position(FILE, 3, 18)
    finding = Finding(
        kind="unwritten_output",
        severity="warning",
        kernel="fill",
        message="200 of 1000 elements of 'out' were not written; the first is element 800",
        place=Place(position, "kernel void fill(device float* out,", "argument", None, None, None),
        buffer="out",
        index=800,
        count=200,
    )
    return replace(finding, **changes)
