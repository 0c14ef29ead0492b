"""x * 2^n in all lanes: one instruction of AVX-512 where an exponential else takes six more."""

from __future__ import annotations

from anymetal.ir import FLOAT, Operand, constant, i32, integer, poison, vector
from anymetal.machine import processor
from anymetal.passes.lower.powers import scaled
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.values import Code, vector_type

_INTRINSIC = "llvm.x86.avx512.mask.scalef.ps.512"
_HALF = WIDTH // 2
_AS_SET = i32(4)  # rounds as the processor is told to, to nearest


def has_instruction() -> bool:
    return processor.has("avx512f")


def scaled_lanes(code: Code, x: Operand, n: Operand) -> Operand:
    """For x in [0.5, 2) and n from -253 to 253; rounded once, as the two halves of `scaled`."""
    if x.type is not vector_type(FLOAT) or not has_instruction():
        return scaled(code, x, n)
    exponents = code.cast("sitofp", n, x.type)
    half, everywhere = vector(_HALF, FLOAT), constant(integer(_HALF), -1)
    results = []
    for start in (0, _HALF):
        places = range(start, start + _HALF)
        given = [code.picked(operand, places) for operand in (x, exponents)]
        arguments = [*given, poison(half), everywhere, _AS_SET]
        results.append(code.declared_call(half, _INTRINSIC, arguments))
    return code.concatenated(results)
