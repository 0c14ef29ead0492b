"""Integer arithmetic that never traps and is never undefined, as on a GPU.

Division by zero gives 0 (and the remainder 0), the most negative number divided by -1 wraps, and a
shift uses the low bits of its count. LLVM calls all of these undefined, and x86 traps on the first
two.
"""

from __future__ import annotations

from functools import partial

from anymetal.ir import Builder, Function, Instruction, Integer, Module, Operand, constant
from anymetal.passes.rewrite import rewrite

_SIGNED = frozenset(("sdiv", "srem"))
DIVISIONS = _SIGNED | {"udiv", "urem"}
SHIFTS = frozenset(("shl", "lshr", "ashr"))


def define_integer_arithmetic(module: Module) -> None:
    """Rewrites divisions and shifts whose right operand is not a constant."""
    for function in module.functions:
        rewrite(function, partial(_define, _remainders(function)))


_Remainders = dict[str | None, Operand]  # divisors, by the result


def _remainders(function: Function) -> _Remainders:
    """What clang has made of a remainder where the same is divided, for processors that have no
    instruction for both: x - x / y * y."""
    known = function.definitions()
    found: _Remainders = {}
    for instruction in function.instructions():
        if instruction.opcode != "sub":
            continue
        left, product = instruction.operands
        times = known.get(product.text)
        if times is None or times.opcode != "mul":
            continue
        for quotient, divisor in (times.operands, reversed(times.operands)):
            division = known.get(quotient.text)
            if division is not None and _divides(division, left, divisor):
                found[instruction.result] = divisor
    return found


def _divides(division: Instruction, left: Operand, right: Operand) -> bool:
    if division.opcode not in ("sdiv", "udiv"):
        return False
    return [operand.text for operand in division.operands] == [left.text, right.text]


def _define(remainders: _Remainders, build: Builder, instruction: Instruction) -> bool:
    divisor = remainders.get(instruction.result)
    if divisor is not None and divisor.is_name:
        _guard_remainder(build, instruction, divisor)
        return True
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


def _guard_remainder(build: Builder, difference: Instruction, divisor: Operand) -> None:
    nothing = constant(difference.type, 0)
    by_zero = build.icmp("eq", divisor, nothing)
    left, product = difference.operands
    build.select(by_zero, nothing, build.sub(left, product), name=str(difference.result))


def _mask_count(build: Builder, shift: Instruction) -> None:
    shift.set_operand(1, build.and_(shift.operands[1], constant(shift.type, _bits(shift) - 1)))
    build.made.append(shift)


def _bits(shift: Instruction) -> int:
    scalar = shift.type.scalar
    assert isinstance(scalar, Integer)
    return scalar.bits
