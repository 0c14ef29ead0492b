"""x * 2^n in all lanes: one instruction of AVX-512 where an exponential else takes six more."""

from __future__ import annotations

import struct

from anymetal.ir import FLOAT, Operand, constant, i32, integer, poison, vector
from anymetal.machine import processor
from anymetal.passes.lower.powers import scaled
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.values import Code, vector_type

_INTRINSIC = "llvm.x86.avx512.mask.scalef.ps.512"
_HALF = WIDTH // 2
_SHIFT_BITS = 0x4B400000  # of 1.5 * 2^23
_NEAR = 1 << 20
_AS_SET = i32(4)  # rounds as the processor is told to, to nearest


def has_instruction() -> bool:
    return processor.has("avx512f")


def scaled_lanes(code: Code, x: Operand, n: Operand) -> Operand:
    """For x in [0.5, 2) and n from -253 to 253; rounded once, as the two halves of `scaled`."""
    if x.type is not vector_type(FLOAT) or not has_instruction():
        return scaled(code, x, n)
    return scaled_by_floats(code, x, code.cast("sitofp", n, x.type))


def scaled_by_floats(code: Code, x: Operand, exponents: Operand) -> Operand:
    half, everywhere = vector(_HALF, FLOAT), constant(integer(_HALF), -1)
    results = []
    for start in (0, _HALF):
        places = range(start, start + _HALF)
        given = [code.picked(operand, places) for operand in (x, exponents)]
        arguments = [*given, poison(half), everywhere, _AS_SET]
        results.append(code.declared_call(half, _INTRINSIC, arguments))
    return code.concatenated(results)


def float_of(kernel: Kernel, n: Operand) -> tuple[Operand, Operand] | None:
    """Two floats whose sum is n, a number within 253 of zero that was read from the bits of the
    first: there it is added to 1.5 * 2^23, where neighbours differ by one."""
    _, total = kernel.definitions.get(n.text, ("", None))
    if total is None or total.opcode != "add" or total.operands[1].integer is None:
        return None
    _, bits = kernel.definitions.get(total.operands[0].text, ("", None))
    if bits is None or bits.opcode != "bitcast" or bits.operands[0].type is not FLOAT:
        return None
    zero_bits = -total.operands[1].integer
    if not _SHIFT_BITS - _NEAR <= zero_bits <= _SHIFT_BITS + _NEAR:
        return None
    away = -float((1 << 22) + zero_bits - _SHIFT_BITS + (1 << 23))
    (text,) = struct.unpack("<Q", struct.pack("<d", away))
    return bits.operands[0], Operand(vector_type(FLOAT), f"splat (float 0x{text:016X})")
