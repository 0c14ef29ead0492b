"""Left shifts by a masked distance: one instruction that wraps."""

from __future__ import annotations

import pytest

from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.engines.cuda.shifts import wrap_left_shifts
from anymetal.nouns import Source

MASK, SHIFT = "\tand.b32 \t%r2, %r1, 31;", "\tshl.b32 \t%r4, %r3, %r2;"


def wrapped(*lines: str) -> str:
    return wrap_left_shifts("\n".join(lines))


def test_the_distance_is_what_was_masked() -> None:
    made = wrapped("\tmov.u32 \t%r1, %tid.x;", MASK, SHIFT)
    assert "shf.l.wrap.b32 \t%r4, 0, %r3, %r1;" in made
    assert "shl" not in made


def test_what_changes_later_is_taken_as_it_was_masked() -> None:
    made = wrapped("\tmov.b32 \t%r1, 1;", MASK, "\tadd.s32 \t%r1, %r1, 1;", SHIFT)
    assert "shf.l.wrap.b32 \t%r4, 0, %r3, %r2;" in made


@pytest.mark.parametrize(
    "lines",
    [
        (SHIFT,),
        ("\tand.b32 \t%r2, %r1, 15;", SHIFT),
        (MASK, "\tadd.s32 \t%r2, %r2, 1;", SHIFT),
        (MASK, "\tshl.b32 \t%r4, %r3, 5;"),
        (MASK, "\tshl.b64 \t%rd4, %rd3, %r2;"),
        (MASK, "\tshr.u32 \t%r4, %r3, %r2;"),
    ],
)
def test_other_shifts_stay(lines: tuple[str, ...]) -> None:
    assert wrapped(*lines) == "\n".join(lines)


def test_shifts_by_a_collective_wrap() -> None:
    text = """#include <metal_stdlib>
    kernel void moved(device uint* x, uint i [[thread_position_in_grid]]) {
      x[i] = (x[i] & 3) << (metal::simd_product(3u) & 31);
    }"""
    made = Compiler(Source(text)).compile("moved", {}, PLAIN, "cuda-sm90")
    assert isinstance(made, CudaExecutable)
    assert all("shf.l.wrap.b32" in ptx for ptx in made.texts)
