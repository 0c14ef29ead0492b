"""Where a simdgroup's lanes are: read once, at the start of its code."""

from __future__ import annotations

from dataclasses import replace

from anymetal.ir import FLOAT, I32, PTR, Operand, Type, i32
from anymetal.machine.layout import Simdgroup
from anymetal.machine.table import offset_of
from anymetal.nouns import MAX_GROUP_SIZE
from anymetal.passes.simdgroup.facts import LANE_NUMBERS, UNIFORM, WIDTH, Facts, Tag
from anymetal.passes.simdgroup.rules import (
    GROUP,
    GROUP_SIZE,
    INDEX,
    POSITION,
    SIMD,
    GroupShape,
)
from anymetal.passes.simdgroup.values import INVARIANT, Code, Value, lanes_operand, vector_type

SIMD_POINTER, GROUP_POINTER = Operand(PTR, "%am.simd"), Operand(PTR, "%am.group.here")
LIVE_LANES = offset_of(Simdgroup, "threads")


def read_machine(code: Code, this: Operand, shape: GroupShape) -> dict[Tag, Value]:
    """Writes the reads of the first lane's description; the members by their offset."""

    def read(kind: Type, offset: int, name: str = "") -> Operand:
        return code.load(kind, code.moved(this, offset), metadata=INVARIANT, name=name)

    machine: dict[Tag, Value] = {}
    for offset, tag, pointer in ((SIMD, "simd", SIMD_POINTER), (GROUP, "group", GROUP_POINTER)):
        read(PTR, offset, pointer.text)
        machine["self", offset] = Value(PTR, replace(UNIFORM, tag=(tag, 0)), pointer)
    index = read(I32, INDEX)
    facts = Facts(LANE_NUMBERS, divisor=WIDTH, limit=MAX_GROUP_SIZE)
    machine["self", INDEX] = Value(I32, facts, index)
    if shape.row == 0:
        positions = _computed_positions(code, index, shape)
    else:
        offsets = range(POSITION, POSITION + 12, 4)
        positions = [
            Value(I32, shape.position(axis), read(I32, offset))
            for axis, offset in enumerate(offsets)
        ]
    for axis, position in enumerate(positions):
        machine["self", POSITION + 4 * axis] = position
    return machine


def _computed_positions(code: Code, index: Operand, shape: GroupShape) -> list[Value]:
    """Positions of lanes that lie anyhow; exact, since all numbers are below 1025."""
    wide, real = vector_type(I32), vector_type(FLOAT)
    half = Operand(real, "splat (float 5.000000e-01)")
    rest = code.add(code.splat(index), lanes_operand(I32, range(WIDTH)))
    positions = []
    for axis in range(3):
        place = code.moved(GROUP_POINTER, GROUP_SIZE + 4 * axis)
        size = code.splat(code.load(I32, place, metadata=INVARIANT))
        middle = code.binary("fadd", code.cast("uitofp", rest, real), half)
        quotient = code.binary("fdiv", middle, code.cast("uitofp", size, real))
        count = code.cast("fptoui", quotient, wide)
        position = code.sub(rest, code.mul(count, size))
        positions.append(Value(I32, shape.position(axis), vector=position))
        rest = count
    return positions


def live_lanes(code: Code) -> tuple[Operand, Operand]:
    """The mask of the lanes that have a thread, and whether all do."""
    live = code.load(I32, code.moved(SIMD_POINTER, LIVE_LANES))
    full = code.icmp("eq", live, i32(WIDTH))
    return code.icmp("ult", lanes_operand(I32, range(WIDTH)), code.splat(live)), full
