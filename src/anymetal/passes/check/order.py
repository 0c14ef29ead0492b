"""Where the accesses of a kernel lie in its control flow: blocks, loops and barriers, as numbers.

Hints for races are made of it: a barrier is missing on the way from one access to the other. The
flow is that of the code before checks are added, which is the author's, with calls inlined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anymetal.ir import Function, Instruction, Operand
from anymetal.ir.flow import graph_of, loop_aware_order
from anymetal.machine.layout import Wait, waits_for
from anymetal.passes.check.debug_info import DebugInfo, Spot

Spots = tuple[Spot, ...]
_FARTHEST = 24  # instructions that are looked at on the way from a load to a store of its place
_SAME_WHEN_EQUAL = frozenset(("getelementptr", "zext", "sext", "trunc", "add", "mul", "call"))


@dataclass(frozen=True)
class Point:
    """A place in the flow: the number of a block, and of an instruction in it."""

    block: int
    step: int


@dataclass(frozen=True)
class LoopLines:
    """A loop: its blocks, where it is entered, where it is written and where its last line is."""

    blocks: frozenset[int]
    header: int
    start: Spots
    last: Spots


@dataclass(frozen=True)
class Flow:
    """Successors of each block, the barriers in it, and the loops, outer ones first."""

    successors: list[list[int]]
    barriers: list[list[int]]
    loops: list[LoopLines]


class Order:
    """Reads the flow of a function, and keeps where its instructions are."""

    def __init__(self, function: Function, info: DebugInfo) -> None:
        self._info = info
        self._definitions = function.definitions()
        self._points: dict[int, Point] = {}
        self._numbers = {block.label: number for number, block in enumerate(function.blocks)}
        self._loads: dict[int, Instruction] = {}  # by a store's id, the load whose place it updates
        for number, block in enumerate(function.blocks):
            for step, instruction in enumerate(block.instructions):
                self._points[id(instruction)] = Point(number, step)
                if instruction.opcode == "store":
                    self._find_update(instruction)
        self.flow = self._read(function)

    def point(self, instruction: Instruction) -> Point | None:
        """Where an instruction stood; None for those of functions that could not be inlined."""
        return self._points.get(id(instruction))

    def updated_load(self, instruction: Instruction) -> Instruction | None:
        """For the store of `x[i] += y`, the load of `x[i]`."""
        return self._loads.get(id(instruction))

    def _read(self, function: Function) -> Flow:
        graph = graph_of(function)
        _, loops = loop_aware_order(graph, function.entry.label)
        number = self._numbers
        blocks = {block.label: block.instructions for block in function.blocks}
        return Flow(
            successors=[[number[label] for label in block.successors] for block in function.blocks],
            barriers=[
                [step for step, own in enumerate(block.instructions) if _is_barrier(own)]
                for block in function.blocks
            ],
            loops=[
                self._lines([blocks[label] for label in sorted(loop.blocks)], loop.blocks, header)
                for loop in loops
                for header in (loop.header,)
            ],
        )

    def _lines(
        self, bodies: list[list[Instruction]], labels: frozenset[str], header: str
    ) -> LoopLines:
        """clang gives the branch back to a loop's start the place of the word `for` or `while`."""
        backs = (body[-1] for body in bodies if header in body[-1].labels)
        start = min((self._spots(back) for back in backs), key=len, default=())
        nodes = {own.metadata["dbg"] for body in bodies for own in body if "dbg" in own.metadata}
        level = len(start)
        inside = [
            spots[-level:]
            for spots in (tuple(self._info.spots(node)) for node in nodes)
            if level and len(spots) >= level and spots[len(spots) - level + 1 :] == start[1:]
        ]
        last = max(inside, key=lambda spots: spots[0].line, default=start)
        numbers = frozenset(self._numbers[label] for label in labels)
        return LoopLines(numbers, self._numbers[header], start, last)

    def _spots(self, instruction: Instruction) -> Spots:
        return tuple(self._info.spots(instruction.metadata.get("dbg")))

    def _find_update(self, store: Instruction) -> None:
        """Whether the value of a store was made of what stood at its place."""
        pending, seen = [store.value], 0
        while pending and seen < _FARTHEST:
            seen += 1
            made = self._definitions.get(pending.pop().text)
            if made is None or made.opcode == "phi":
                continue
            if made.opcode == "load" and self._equal(made.pointer, store.pointer):
                self._loads[id(store)] = made
                return
            pending += made.operands if made.opcode != "load" else ()

    def _equal(self, one: Operand, other: Operand) -> bool:
        """Whether two values are the same, or computed alike of the same."""
        if one.text == other.text:
            return True
        first, second = (self._definitions.get(value.text) for value in (one, other))
        if first is None or second is None or first.opcode != second.opcode:
            return False
        if first.opcode not in _SAME_WHEN_EQUAL or first.callee != second.callee:
            return False
        pairs = list(zip(first.operands, second.operands, strict=False))
        same_number = len(first.operands) == len(second.operands)
        return same_number and all(self._equal(a, b) for a, b in pairs)


def _is_barrier(instruction: Instruction) -> bool:
    if instruction.callee != "am_suspend":
        return False
    word = instruction.operands[0].integer
    return word is not None and waits_for(word) == Wait.THREADGROUP_BARRIER


def reachable(
    flow: Flow, start: Point, target: Point, without: frozenset[tuple[int, int]] = frozenset()
) -> bool:
    """Whether a thread comes from one point to another without a barrier on its way.

    `without` are edges, as pairs of blocks, that it does not take.
    """
    seen: set[int] = set()
    pending = list(_ways_out(flow, start, target, without))
    if target in pending:
        return True
    while pending:
        point = pending.pop()
        if point == target:
            return True
        if point.block not in seen:
            seen.add(point.block)
            pending += _ways_out(flow, point, target, without)
    return False


def _ways_out(
    flow: Flow, start: Point, target: Point, without: frozenset[tuple[int, int]]
) -> Iterator[Point]:
    """The target, if it is in the rest of this block; the starts of the blocks behind it; nothing
    where a barrier comes first."""
    stop = next((step for step in flow.barriers[start.block] if step > start.step), None)
    if target.block == start.block and target.step > start.step:
        if stop is None or target.step < stop:
            yield target
        return
    if stop is None:
        for block in flow.successors[start.block]:
            if (start.block, block) not in without:
                yield Point(block, -1)
