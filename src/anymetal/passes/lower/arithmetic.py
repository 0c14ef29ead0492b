"""Integer arithmetic that never traps and is never undefined, as on a GPU.

Division by zero gives 0 (and the remainder 0), the most negative number divided by -1 wraps, and a
shift uses the low bits of its count. LLVM calls all of these undefined, and x86 traps on the first
two.
"""

from __future__ import annotations

from anymetal.ir import Builder, Instruction, Integer, Module, constant
from anymetal.passes.rewrite import rewrite

_SIGNED = frozenset(("sdiv", "srem"))
DIVISIONS = _SIGNED | {"udiv", "urem"}
SHIFTS = frozenset(("shl", "lshr", "ashr"))


def define_integer_arithmetic(module: Module) -> None:
    """Rewrites divisions and shifts whose right operand is not a constant."""
    for function in module.functions:
        rewrite(function, _define)


def _define(build: Builder, instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode not in DIVISIONS | SHIFTS or not instruction.operands[1].is_name:
        return False
    if opcode in SHIFTS:
        _mask_count(build, instruction)
    else:
        _guard_division(build, instruction)
    return True


def _guard_division(build: Builder, division: Instruction) -> None:
    left, right = division.operands
    kind = division.type
    nothing, one = constant(kind, 0), constant(kind, 1)
    by_zero = build.icmp("eq", right, nothing)
    if division.opcode not in _SIGNED:
        result = build.binary(division.opcode, left, build.select(by_zero, one, right))
    else:
        by_minus_one = build.icmp("eq", right, constant(kind, -1))
        divisor = build.select(build.or_(by_zero, by_minus_one), one, right)
        result = build.binary(division.opcode, left, divisor)
        if division.opcode == "sdiv":
            result = build.select(by_minus_one, build.sub(nothing, left), result)
    build.select(by_zero, nothing, result, name=str(division.result))


def _mask_count(build: Builder, shift: Instruction) -> None:
    shift.set_operand(1, build.and_(shift.operands[1], constant(shift.type, _bits(shift) - 1)))
    build.made.append(shift)


def _bits(shift: Instruction) -> int:
    scalar = shift.type.scalar
    assert isinstance(scalar, Integer)
    return scalar.bits
