"""Where a simdgroup's lanes are: read once, at the start of its code."""

from __future__ import annotations

from dataclasses import replace

from anymetal.machine.layout import Simdgroup
from anymetal.machine.table import offset_of
from anymetal.nouns import MAX_GROUP_SIZE
from anymetal.passes.simdgroup import facts as lanes
from anymetal.passes.simdgroup.facts import UNIFORM, WIDTH, Facts, Tag
from anymetal.passes.simdgroup.rules import (
    GROUP,
    GROUP_SIZE,
    INDEX,
    POSITION,
    SIMD,
    GroupShape,
)
from anymetal.passes.simdgroup.values import Code, Value, lanes_text, vector_type

SIMD_POINTER, GROUP_POINTER = "%am.simd", "%am.group.here"
LIVE_LANES = offset_of(Simdgroup, "threads")


def read_machine(code: Code, self_text: str, shape: GroupShape) -> dict[Tag, Value]:
    """Writes the reads of the first lane's description; the members by their offset."""

    def read(kind: str, offset: int) -> str:
        place = code.moved("ptr", self_text, offset)
        return f"load {kind}, ptr {place}, !invariant.load !4000000"

    machine: dict[Tag, Value] = {}
    for offset, tag, name in ((SIMD, "simd", SIMD_POINTER), (GROUP, "group", GROUP_POINTER)):
        code.line(f"{name} = {read('ptr', offset)}")
        machine["self", offset] = Value("ptr", replace(UNIFORM, tag=(tag, 0)), name)
    index = code.op(read("i32", INDEX))
    facts = Facts(lanes.LANE_NUMBERS, divisor=WIDTH, limit=MAX_GROUP_SIZE)
    machine["self", INDEX] = Value("i32", facts, index)
    if shape.row == 0:
        positions = _computed_positions(code, index, shape)
    else:
        offsets = range(POSITION, POSITION + 12, 4)
        positions = [
            Value("i32", shape.position(axis), code.op(read("i32", offset)))
            for axis, offset in enumerate(offsets)
        ]
    for axis, position in enumerate(positions):
        machine["self", POSITION + 4 * axis] = position
    return machine


def _computed_positions(code: Code, index: str, shape: GroupShape) -> list[Value]:
    """Positions of lanes that lie anyhow; exact, since all numbers are below 1025."""
    wide, real = vector_type("i32"), vector_type("float")
    rest = code.op(f"add {wide} {code.splat('i32', index)}, {lanes_text('i32', range(WIDTH))}")
    positions = []
    for axis in range(3):
        place = code.moved("ptr", GROUP_POINTER, GROUP_SIZE + 4 * axis)
        size = code.splat("i32", code.op(f"load i32, ptr {place}, !invariant.load !4000000"))
        middle = code.op(f"uitofp {wide} {rest} to {real}")
        middle = code.op(f"fadd {real} {middle}, splat (float 5.000000e-01)")
        divisor = code.op(f"uitofp {wide} {size} to {real}")
        quotient = code.op(f"fdiv {real} {middle}, {divisor}")
        count = code.op(f"fptoui {real} {quotient} to {wide}")
        product = code.op(f"mul {wide} {count}, {size}")
        position = code.op(f"sub {wide} {rest}, {product}")
        positions.append(Value("i32", shape.position(axis), vector=position))
        rest = count
    return positions


def live_lanes(code: Code) -> tuple[str, str]:
    """The mask of the lanes that have a thread, and whether all do."""
    live = code.op(f"load i32, ptr {code.moved('ptr', SIMD_POINTER, LIVE_LANES)}")
    full = code.op(f"icmp eq i32 {live}, {WIDTH}")
    counts = code.splat("i32", live)
    numbers = lanes_text("i32", range(WIDTH))
    return code.op(f"icmp ult {vector_type('i32')} {numbers}, {counts}"), full
