"""Maxima and minima of floats, in one instruction and a look at NaN.

`x < y or x is NaN ? y : x` are two comparisons, a union of masks and a selection, one waiting for
the other. The processor's maximum is `y > x ? y : x`, of equal zeros and with a NaN the second:
just what is left when x is no NaN. LLVM has no name for that which it would not turn around.
"""

from __future__ import annotations

from anymetal.ir import (
    FLOAT,
    I32,
    Builder,
    Function,
    Instruction,
    Operand,
    Parameter,
    Signature,
    Type,
    Vector,
    i32,
    poison,
    vector,
)
from anymetal.machine import processor

_WIDEST = 16  # floats in a register
_MAXIMA = {
    16: "llvm.x86.avx512.max.ps.512",
    8: "llvm.x86.avx.max.ps.256",
    4: "llvm.x86.sse.max.ps",
}
_ZEROS = ("zeroinitializer", "splat (float 0.000000e+00)")
_AS_SET = i32(4)  # how exceptions are dealt with
_Definitions = dict[str, Instruction]


def write_extremes(function: Function) -> list[Signature]:
    """Replaces such selections; returns the declarations that this needs."""
    if not processor.has("avx512f"):
        return []
    made = function.definitions()
    declared: dict[str, Signature] = {}
    for block in function.blocks:
        build = Builder(function.fresh)
        for instruction in block.instructions:
            found = _extreme(instruction, made) if instruction.opcode == "select" else None
            if found is None:
                build.made.append(instruction)
                continue
            name, is_nan = found
            _, y, x = instruction.operands
            extreme = _written(build, name, x, y, declared)
            build.select(is_nan, y, extreme, name=str(instruction.result))
        block.instructions = build.made
    return list(declared.values())


def _extreme(selection: Instruction, made: _Definitions) -> tuple[str, Operand] | None:
    """`max` or `min`, and whether x is NaN, where that is what a selection chooses."""
    condition, y, x = selection.operands
    either = made.get(condition.text)
    if not _is_known(selection.type) or either is None or either.opcode != "or":
        return None
    for nan, other in (either.operands, either.operands[::-1]):
        test, order = made.get(nan.text), made.get(other.text)
        if test is None or order is None or not _asks_for_nan(test, x):
            continue
        if order.opcode == "fcmp" and order.predicate in ("olt", "ogt"):
            given = order.operands if order.predicate == "olt" else order.operands[::-1]
            name = {(x, y): "max", (y, x): "min"}.get((given[0], given[1]))
            return (name, nan) if name is not None else None
    return None


def _is_known(kind: Type) -> bool:
    if not isinstance(kind, Vector) or kind.scalar is not FLOAT:
        return False
    return kind.count in _MAXIMA or kind.count == 2 * _WIDEST


def _asks_for_nan(test: Instruction, x: Operand) -> bool:
    if test.opcode != "fcmp" or test.predicate != "uno" or x not in test.operands:
        return False
    return all(operand == x or operand.text in _ZEROS for operand in test.operands)


def _written(
    build: Builder, name: str, x: Operand, y: Operand, declared: dict[str, Signature]
) -> Operand:
    """Of y and x in this order: where neither is more, it is x."""
    assert isinstance(x.type, Vector)
    count = x.type.count
    if count <= _WIDEST:
        return _call(build, name, y, x, declared)
    parts = []
    for start in range(0, count, _WIDEST):
        places = range(start, start + _WIDEST)
        first, second = (build.shuffle(value, poison(value.type), places) for value in (y, x))
        parts.append(_call(build, name, first, second, declared))
    return build.shuffle(parts[0], parts[1], range(count))


def _call(
    build: Builder, name: str, first: Operand, second: Operand, declared: dict[str, Signature]
) -> Operand:
    assert isinstance(first.type, Vector)
    kind = vector(first.type.count, FLOAT)
    arguments = [first, second, *([_AS_SET] if first.type.count == _WIDEST else [])]
    callee = _MAXIMA[first.type.count].replace(".max.", f".{name}.")
    kinds = [kind, kind, I32][: len(arguments)]
    declared.setdefault(callee, Signature(callee, kind, [Parameter(each) for each in kinds]))
    return build.call(kind, callee, arguments)
