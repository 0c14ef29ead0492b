"""Transfer functions: the facts of an instruction's result, from the facts of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from anymetal.ir import Instruction, Type
from anymetal.passes.simdgroup.facts import (
    UNIFORM,
    VARYING,
    ZERO,
    Facts,
    constant,
    divisor_of,
    free_bits,
    known,
    meet,
    width_of,
    wrap,
)


def binary(instruction: Instruction, left: Facts, right: Facts) -> Facts:
    """Facts of an arithmetic instruction's result."""
    width = width_of(instruction.type)
    if width is None:
        return _all_or_nothing(left, right)
    if left.values is not None and right.values is not None:
        return _folded(instruction.opcode, width, left, right)
    if left.offsets is None or right.offsets is None:
        return VARYING
    rule = _RULES.get(instruction.opcode)
    result = rule(width, left, right) if rule else None
    if instruction.opcode == "or" and "disjoint" in instruction.flags and result is None:
        result = _add(width, left, right)
    return result or _all_or_nothing(left, right)


def _all_or_nothing(*operands: Facts) -> Facts:
    return UNIFORM if all(facts.is_uniform for facts in operands) else VARYING


def combine(*operands: Facts) -> Facts:
    """Facts of a result that is uniform if everything it is made of is."""
    return _all_or_nothing(*operands)


@lru_cache(maxsize=1024)
def _folded(opcode: str, width: int, left: Facts, right: Facts) -> Facts:
    operation = _FOLDS.get(opcode)
    values = zip(left.values or (), right.values or (), strict=True)
    if operation is None:
        return _all_or_nothing(left, right)
    if left.is_uniform and right.is_uniform:
        value = operation(*next(values), width)
        return UNIFORM if value is None else constant(wrap(value, width))
    results = []
    for a, b in values:
        value = operation(a, b, width)
        if value is None:
            return VARYING
        results.append(wrap(value, width))
    return known(results)


def _unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


_FOLDS: dict[str, Callable[[int, int, int], int | None]] = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "and": lambda a, b, w: a & b,
    "or": lambda a, b, w: a | b,
    "xor": lambda a, b, w: a ^ b,
    "shl": lambda a, b, w: a << b if 0 <= b < w else None,
    "lshr": lambda a, b, w: _unsigned(a, w) >> b if 0 <= b < w else None,
    "ashr": lambda a, b, w: a >> b if 0 <= b < w else None,
    "udiv": lambda a, b, w: _unsigned(a, w) // _unsigned(b, w) if b else None,
    "urem": lambda a, b, w: _unsigned(a, w) % _unsigned(b, w) if b else None,
}


def _add(width: int, left: Facts, right: Facts) -> Facts:
    assert left.offsets is not None and right.offsets is not None
    limit = None
    if left.limit is not None and right.limit is not None:
        limit = left.limit + right.limit
    if _is_grid_position(left, right) or _is_grid_position(right, left):
        limit = 1 << 32
    if limit is not None and limit > 1 << width:
        limit = None
    return Facts(
        tuple(wrap(a + b, width) for a, b in zip(left.offsets, right.offsets, strict=True)),
        divisor=math.gcd(left.divisor, right.divisor),
        limit=limit,
        sure=left.sure and right.sure,
    )


def _is_grid_position(origin: Facts, position: Facts) -> bool:
    """A threadgroup's first thread plus a position in it: below the size of the grid."""
    if origin.tag is None or position.tag is None:
        return False
    return (origin.tag[0], position.tag[0]) == ("origin", "position") and (
        origin.tag[1] == position.tag[1]
    )


def _subtract(width: int, left: Facts, right: Facts) -> Facts:
    assert left.offsets is not None and right.offsets is not None
    return Facts(
        tuple(wrap(a - b, width) for a, b in zip(left.offsets, right.offsets, strict=True)),
        divisor=math.gcd(left.divisor, right.divisor),
        sure=left.sure and right.sure,
    )


def _multiply(width: int, left: Facts, right: Facts) -> Facts | None:
    if left.base is not None and left.is_uniform:
        left, right = right, left
    if left.tag and right.tag and {left.tag[0], right.tag[0]} == {"group_position", "group_size"}:
        same_axis = left.tag[1] == right.tag[1]
        return replace(UNIFORM, tag=("origin", left.tag[1])) if same_axis else UNIFORM
    if right.base is None or not right.is_uniform or left.offsets is None:
        return None
    factor = right.base + (right.offsets or ZERO)[0]
    limit = left.limit * factor if left.limit is not None and factor > 0 else None
    return Facts(
        tuple(wrap(offset * factor, width) for offset in left.offsets),
        divisor=left.divisor * divisor_of(factor),
        limit=limit if limit is not None and limit <= 1 << width else None,
        sure=left.sure,
    )


def _shift_left(width: int, left: Facts, right: Facts) -> Facts | None:
    if right.base is None or not right.is_uniform or not 0 <= right.base < width:
        return None
    return _multiply(width, left, constant(1 << right.base))


def _pattern_and_constant(left: Facts, right: Facts) -> tuple[Facts, int, int] | None:
    """The operands in order, with the pattern's free bits, if that is what they are."""
    if left.base is not None and left.is_uniform:
        left, right = right, left
    if right.base is None or not right.is_uniform or not left.is_pattern:
        return None
    low = free_bits(left)
    return None if low is None else (left, right.base, low)


def _shift_right(width: int, left: Facts, right: Facts) -> Facts | None:
    if right.base is None or not right.is_uniform or not left.is_pattern:
        return None
    low = free_bits(left)
    if low is None or not 0 <= right.base < width:
        return None
    assert left.offsets is not None
    return Facts(
        tuple(offset >> right.base for offset in left.offsets),
        divisor=max(left.divisor >> right.base, 1) if low >> right.base else 1,
        limit=left.limit,
    )


def _and(width: int, left: Facts, right: Facts) -> Facts | None:
    operands = _pattern_and_constant(left, right)
    if operands is None:
        return None
    pattern, mask, low = operands
    assert pattern.offsets is not None
    offsets = [offset & mask for offset in pattern.offsets]
    if 0 <= mask < low:
        return known(offsets)
    limit = mask + 1 if mask >= 0 else pattern.limit
    return Facts(tuple(offsets), divisor=low, limit=limit)


def _or(width: int, left: Facts, right: Facts) -> Facts | None:
    return _bits_set(left, right, lambda a, b: a | b)


def _xor(width: int, left: Facts, right: Facts) -> Facts | None:
    return _bits_set(left, right, lambda a, b: a ^ b)


def _bits_set(left: Facts, right: Facts, operation: Callable[[int, int], int]) -> Facts | None:
    """The low bits of the constant go into the offsets, the others into the base."""
    operands = _pattern_and_constant(left, right)
    if operands is None:
        return None
    pattern, number, low = operands
    assert pattern.offsets is not None
    offsets = tuple(operation(offset, number & (low - 1)) for offset in pattern.offsets)
    return Facts(offsets, divisor=low)


_RULES: dict[str, Callable[[int, Facts, Facts], Facts | None]] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "shl": _shift_left,
    "lshr": _shift_right,
    "and": _and,
    "or": _or,
    "xor": _xor,
}


def cast(instruction: Instruction, source: Facts, source_kind: Type) -> Facts:
    """Facts of a conversion's result."""
    before, after = width_of(source_kind), width_of(instruction.type)
    if before is None or after is None or source.offsets is None:
        return _all_or_nothing(source)
    if source.values is not None:
        if instruction.opcode == "zext":
            return known([_unsigned(value, before) for value in source.values])
        if instruction.opcode == "sext" and before == 1:
            return known([-value for value in source.values])  # a set bit stands for -1
        return known([wrap(value, after) for value in source.values])
    if instruction.opcode == "trunc":
        small = source.limit is not None and source.limit <= 1 << after
        return Facts(
            tuple(wrap(offset, after) for offset in source.offsets),
            divisor=math.gcd(source.divisor, 1 << after),
            limit=source.limit if small else None,
            sure=source.sure,
        )
    if instruction.opcode in ("ptrtoint", "inttoptr", "bitcast") and before == after:
        return replace(source, tag=None)
    if source.is_uniform:
        if instruction.opcode == "zext":
            return replace(UNIFORM, limit=source.limit, divisor=source.divisor)
        negative = source.limit is None or source.limit > 1 << (before - 1)  # it may be
        return replace(UNIFORM, limit=None if negative else source.limit)
    if instruction.opcode in ("zext", "sext"):
        exact = is_exact(instruction.opcode, source, before)
        return replace(source, sure=source.sure and exact, tag=None)
    return VARYING


def is_exact(opcode: str, source: Facts, width: int) -> bool:
    """Whether a pattern is the same one in a wider type, where it holds at all."""
    bound = 1 << (width - (opcode == "sext"))
    small = source.limit is not None and source.limit <= bound
    return small and min(source.offsets or ZERO) >= 0


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def compare(instruction: Instruction, left: Facts, right: Facts) -> Facts:
    """Facts of an integer comparison's result."""
    tags = {facts.tag[0] for facts in (left, right) if facts.tag}
    if tags == {"leader", "lane"}:
        # All lanes run at once here: what the leader does for them is done once, by all.
        return constant(int(instruction.predicate == "eq"))
    width = width_of(instruction.operands[0].type)
    if left.values is None or right.values is None or width is None:
        return _all_or_nothing(left, right)
    unsigned = instruction.predicate.startswith("u")
    operation = _COMPARISONS[instruction.predicate.removeprefix("u").removeprefix("s")]
    return known(
        [
            int(
                operation(_unsigned(a, width), _unsigned(b, width)) if unsigned else operation(a, b)
            )
            for a, b in zip(left.values, right.values, strict=True)
        ]
    )


def select(condition: Facts, yes: Facts, no: Facts) -> Facts:
    """Facts of a choice between two values."""
    if condition.values is not None:
        if all(condition.values):
            return yes
        if not any(condition.values):
            return no
        if yes.values is not None and no.values is not None:
            chosen = zip(condition.values, yes.values, no.values, strict=True)
            return known([a if c else b for c, a, b in chosen])
        return VARYING
    if not condition.is_uniform:
        return VARYING
    merged = meet(yes, no)
    if merged.is_varying:
        return merged
    return replace(merged, base=None, tag=None)


BOUNDS = ("llvm.umin.", "llvm.smin.", "llvm.umax.", "llvm.smax.")


def bounded(instruction: Instruction, left: Facts, right: Facts) -> Facts:
    """Facts of the lesser or the greater of two integers.

    Of a pattern and a bound for all lanes the result is the pattern, where no lane is beyond the
    bound and none has wrapped around: an index held at the end of a row, say.
    """
    pattern, bound = (right, left) if left.is_uniform else (left, right)
    if pattern.offsets is None or not bound.is_uniform or pattern.is_uniform:
        return _all_or_nothing(left, right)
    if min(pattern.offsets) < 0:
        return VARYING
    limit = pattern.limit
    if limit is None and (instruction.callee or "").startswith("llvm.u"):
        limit = 1 << (width_of(instruction.type) or 0)
    return Facts(pattern.offsets, divisor=pattern.divisor, limit=limit, sure=False)


@lru_cache(maxsize=1024)
def step(pointer: Facts, index: Facts, size: int) -> Facts:
    """Facts of a pointer moved by `index` elements of `size` bytes; the index has 64 bits."""
    if pointer.offsets is None or index.offsets is None:
        return VARYING
    tag = None
    if pointer.tag is not None and index.base is not None and index.is_uniform:
        tag = (pointer.tag[0], pointer.tag[1] + (index.base + index.offsets[0]) * size)
    shift = index.base or 0
    return Facts(
        tuple(a + (shift + b) * size for a, b in zip(pointer.offsets, index.offsets, strict=True)),
        divisor=1,
        sure=pointer.sure and index.sure,
        tag=tag,
    )
