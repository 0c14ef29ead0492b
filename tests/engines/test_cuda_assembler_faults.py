"""What an assembler of NVIDIA's gets wrong is said in other words, which mean the same."""

from __future__ import annotations

import pytest
from tests.cuda.assemble import assemble

from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.assembler_faults import avoid_assembler_faults
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.nouns import Source

MASK, SHIFT = "\tand.b32 \t%r2, %r1, 31;", "\tshl.b32 \t%r4, %r3, %r2;"


def made_of(*lines: str) -> str:
    return avoid_assembler_faults("\n".join(lines))


def test_the_distance_is_what_was_masked() -> None:
    made = made_of("\tmov.u32 \t%r1, %tid.x;", MASK, SHIFT)
    assert "shf.l.wrap.b32 \t%r4, 0, %r3, %r1;" in made
    assert "shl" not in made


def test_what_changes_later_is_taken_as_it_was_masked() -> None:
    made = made_of("\tmov.b32 \t%r1, 1;", MASK, "\tadd.s32 \t%r1, %r1, 1;", SHIFT)
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
    assert made_of(*lines) == "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("\tneg.s16 \t%rs2, %rs1;", "\tsub.u16 \t%rs2, 0, %rs1;"),
        ("\tsub.s16 \t%rs3, %rs2, %rs1;", "\tsub.u16 \t%rs3, %rs2, %rs1;"),
        ("\tneg.s32 \t%r2, %r1;", "\tneg.s32 \t%r2, %r1;"),
    ],
)
def test_shorts_wrap_around(line: str, made: str) -> None:
    assert made_of(line) == made


KERNEL = """#include <metal_stdlib>
using namespace metal;
kernel void faults(device const short* x, device int* y, uint i [[thread_position_in_grid]]) {
  BODY
}"""


@pytest.mark.parametrize(
    ("body", "word", "avoided"),
    [
        ("y[i] = (y[i] & 3) << (simd_product(3) & 31);", "shf.l.wrap.b32", ""),
        ("y[i] = short(-x[i]);", "sub.u16", "neg.s16"),
        ("y[i] = short(abs(x[i]));", "max.s16", "abs.s16"),
        ("y[i] = short(x[i] - x[i + 1]);", "sub.u16", "sub.s16"),
    ],
)
def test_kernels_are_assembled_without_the_words(body: str, word: str, avoided: str) -> None:
    made = Compiler(Source(KERNEL.replace("BODY", body))).compile("faults", {}, PLAIN, "cuda-sm90")
    assert isinstance(made, CudaExecutable)
    for number, ptx in enumerate(made.texts):
        assert word in ptx
        assert not avoided or avoided not in ptx
        assert not assemble(made, "sm_90", number).said
