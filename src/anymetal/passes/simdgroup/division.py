"""Quotients and remainders of 32 integers at once, through floating point.

No processor divides vectors of integers: LLVM would write 32 divisions, each with its moves between
registers. A quotient of integers of n bits that is no integer differs from the next one by 1 / b at
least, and is not larger than 2^n / b: in double, of 53 bits, it is rounded by less than 1 / b for n
up to 32, and in float, of 24 bits, for n up to 16. So it is on the right side of that next one, and
truncated it is the quotient.
"""

from __future__ import annotations

from anymetal.ir import DOUBLE, FLOAT, Integer, Operand, Type
from anymetal.passes.simdgroup.values import Code, vector_type

_WORD, _SHORT = 32, 16  # bits


def fits(kind: Type) -> bool:
    return isinstance(kind.scalar, Integer) and 1 < kind.scalar.bits <= _WORD


def divided(code: Code, opcode: str, left: Operand, right: Operand) -> Operand:
    """udiv, sdiv, urem or srem of two vectors; a lane that divides by 0 gets anything."""
    kind, sign = left.type, opcode[0]
    assert isinstance(kind.scalar, Integer)
    wide = vector_type(FLOAT if kind.scalar.bits <= _SHORT else DOUBLE)
    a, b = (code.cast(f"{sign}itofp", value, wide) for value in (left, right))
    ratio = code.binary("fdiv", a, b)
    quotient = code.cast(f"fpto{sign}i", ratio, kind)
    if opcode.endswith("div"):
        return quotient
    return code.sub(left, code.mul(quotient, right))
