"""Facts of results hold for every value their operands may have."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anymetal.ir import I1, I32, Instruction, Operand, Parts, Type, integer
from anymetal.passes.simdgroup.facts import (
    LANE_NUMBERS,
    UNIFORM,
    VARYING,
    WIDTH,
    ZERO,
    Facts,
    constant,
    free_bits,
    known,
    meet,
    normal,
    wrap,
)
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.passes.simdgroup.transfer import binary, cast, compare, select, step

BITS = 32


def _made(opcode: str, kind: Type, parts: Parts | None = None) -> Instruction:
    return Instruction.of(opcode, "%r", Parts(type=kind) | (parts or Parts()))


@dataclass(frozen=True)
class Example:
    """Facts, and 32 values for which they hold."""

    facts: Facts
    values: tuple[int, ...]


def holds(facts: Facts, values: tuple[int, ...], width: int) -> None:
    """Asserts everything that facts claim of values."""
    if facts.offsets is None:
        return
    modulus = 1 << width
    if facts.values is not None:
        assert [v % modulus for v in values] == [v % modulus for v in facts.values]
    if not facts.sure:
        return
    base = (values[0] - facts.offsets[0]) % modulus
    for value, offset in zip(values, facts.offsets, strict=True):
        assert value % modulus == (base + offset) % modulus
    low = facts.divisor & -facts.divisor
    assert base % min(low, modulus) == 0
    if facts.limit is not None:
        assert max(value % modulus for value in values) < facts.limit


PATTERNS = st.sampled_from(
    [
        ZERO,
        LANE_NUMBERS,
        tuple(lane // 8 for lane in range(WIDTH)),
        tuple(4 * lane for lane in range(WIDTH)),
        tuple(31 - lane for lane in range(WIDTH)),
        tuple(-lane for lane in range(WIDTH)),
        tuple(lane * 17 % 13 for lane in range(WIDTH)),
    ]
)
NUMBERS = st.one_of(
    st.integers(-40, 70),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 31).map(lambda n: 1 << n),
)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    offsets = draw(PATTERNS)
    if draw(st.booleans()):
        start = wrap(draw(NUMBERS), BITS)
        values = tuple(wrap(start + offset, BITS) for offset in offsets)
        return Example(known(values), values)
    divisor = draw(st.sampled_from([1, 2, 6, 32, 96, 1 << 10]))
    # 0 and the ends of the range are where carries and borrows show.
    base = draw(st.one_of(NUMBERS, st.just(-32), st.just((1 << 31) - 32))) // divisor * divisor
    values = tuple(wrap(base + offset, BITS) for offset in offsets)
    whole = [v % (1 << BITS) for v in values]
    unwrapped = [base % (1 << BITS) + offset for offset in offsets] == whole
    limit = max(whole) + 1 if unwrapped and draw(st.booleans()) else None
    return Example(normal(Facts(offsets, divisor=divisor, limit=limit)), values)


def unsigned(value: int) -> int:
    return value % (1 << BITS)


ARITHMETIC = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": lambda a, b: a << b,
    "lshr": lambda a, b: unsigned(a) >> b,
    "ashr": operator.rshift,
    "udiv": lambda a, b: unsigned(a) // unsigned(b),
    "urem": lambda a, b: unsigned(a) % unsigned(b),
}


@pytest.mark.parametrize("opcode", sorted(ARITHMETIC))
@settings(max_examples=150, deadline=None, derandomize=True)
@given(left=examples(), right=examples())
def test_arithmetic(opcode: str, left: Example, right: Example) -> None:
    if opcode in ("shl", "lshr", "ashr"):
        assume(all(0 <= value < BITS for value in right.values))
    if opcode in ("udiv", "urem"):
        assume(all(right.values))
    function = ARITHMETIC[opcode]
    pairs = zip(left.values, right.values, strict=True)
    values = tuple(wrap(function(a, b), BITS) for a, b in pairs)
    facts = binary(_made(opcode, I32), left.facts, right.facts)
    holds(facts, values, BITS)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(left=examples(), right=examples())
def test_or_of_disjoint_bits_is_a_sum(left: Example, right: Example) -> None:
    pairs = list(zip(left.values, right.values, strict=True))
    assume(not any(a & b for a, b in pairs))
    facts = binary(_made("or", I32, Parts(flags=("disjoint",))), left.facts, right.facts)
    holds(facts, tuple(a | b for a, b in pairs), BITS)


@pytest.mark.parametrize(
    ("opcode", "width"), [("zext", 64), ("sext", 64), ("zext", 33), ("trunc", 1), ("trunc", 8)]
)
@settings(max_examples=80, deadline=None, derandomize=True)
@given(source=examples())
def test_conversions(opcode: str, width: int, source: Example) -> None:
    values = tuple(unsigned(v) if opcode == "zext" else wrap(v, width) for v in source.values)
    holds(cast(_made(opcode, integer(width)), source.facts, I32), values, width)


@pytest.mark.parametrize(("opcode", "yes"), [("zext", 1), ("sext", -1)])
def test_a_bit_of_each_lane_becomes_wider(opcode: str, yes: int) -> None:
    bits = known([int(lane < 13) for lane in range(WIDTH)])
    wider = cast(_made(opcode, I32), bits, I1)
    assert wider.values == tuple(yes if lane < 13 else 0 for lane in range(WIDTH))


COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sge": operator.ge,
    "ult": lambda a, b: unsigned(a) < unsigned(b),
    "uge": lambda a, b: unsigned(a) >= unsigned(b),
}


@pytest.mark.parametrize("predicate", sorted(COMPARISONS))
@settings(max_examples=60, deadline=None, derandomize=True)
@given(left=examples(), right=examples())
def test_comparisons(predicate: str, left: Example, right: Example) -> None:
    instruction = _made("icmp", I1, Parts(predicate=predicate))
    instruction.operands = (Operand(I32, "%a"), Operand(I32, "%b"))
    pairs = zip(left.values, right.values, strict=True)
    values = tuple(int(COMPARISONS[predicate](a, b)) for a, b in pairs)
    holds(compare(instruction, left.facts, right.facts), values, 1)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(yes=examples(), no=examples(), condition=st.sampled_from([0, 1, "lanes"]))
def test_choices(yes: Example, no: Example, condition: int | str) -> None:
    chosen = [lane % 3 == 0 if condition == "lanes" else bool(condition) for lane in range(WIDTH)]
    triples = zip(chosen, yes.values, no.values, strict=True)
    values = tuple(a if c else b for c, a, b in triples)
    holds(select(known([int(c) for c in chosen]), yes.facts, no.facts), values, BITS)
    if condition != "lanes":
        holds(select(UNIFORM, yes.facts, no.facts), values, BITS)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(index=examples(), size=st.sampled_from([1, 4, 12]))
def test_addresses(index: Example, size: int) -> None:
    """An index has 64 bits and is not reduced: 40 more bits than these numbers need."""
    assume(
        index.facts.offsets is not None and min(index.values) >= 0 and max(index.values) < 1 << 20
    )
    facts = step(Facts(ZERO), index.facts, size)
    holds(facts, tuple(1 << 40 | value * size for value in index.values), 64)


def test_meeting_keeps_what_both_say() -> None:
    first = Facts(LANE_NUMBERS, divisor=64, limit=100, tag=("position", 0))
    second = Facts(LANE_NUMBERS, divisor=96, limit=90)
    assert meet(first, second) == Facts(LANE_NUMBERS, divisor=32)
    assert meet(first, UNIFORM) == VARYING
    assert meet(replace(first, sure=False), second) == VARYING
    assert meet(constant(4), constant(6)) == Facts(ZERO, divisor=2)


def test_free_bits_need_a_base_without_them() -> None:
    assert free_bits(Facts(LANE_NUMBERS, divisor=96)) == 32
    assert free_bits(Facts(LANE_NUMBERS, divisor=16)) is None
    assert free_bits(Facts(tuple(-lane for lane in range(WIDTH)), divisor=64)) is None


def test_uniform_pattern_and_varying_exclude_each_other() -> None:
    for facts in (UNIFORM, VARYING, Facts(LANE_NUMBERS), Facts(ZERO, sure=False)):
        assert [facts.is_uniform, facts.is_pattern, facts.is_varying].count(True) == 1


def test_the_leader_works_for_all_lanes() -> None:
    leader, lane = (
        replace(UNIFORM, tag=("leader", 0)),
        replace(known(LANE_NUMBERS), tag=("lane", 0)),
    )
    instruction = _made("icmp", I1, Parts(predicate="eq"))
    instruction.operands = (Operand(I32, "%a"), Operand(I32, "%b"))
    assert compare(instruction, leader, lane).values == (1,) * WIDTH
    instruction.predicate = "ne"
    assert compare(instruction, lane, leader).values == (0,) * WIDTH


@pytest.mark.parametrize(
    ("x", "y", "z"), [(64, 1, 1), (32, 3, 2), (16, 2, 1), (8, 8, 1), (1, 32, 2)]
)
def test_positions_in_a_threadgroup(x: int, y: int, z: int) -> None:
    shape = GroupShape(min(x, WIDTH), complete=True)
    for simd in range(x * y * z // WIDTH):
        indices = [simd * WIDTH + lane for lane in range(WIDTH)]
        places = [(i % x, i // x % y, i // x // y) for i in indices]
        for axis in range(3):
            holds(shape.position(axis), tuple(place[axis] for place in places), 32)
