"""Two accesses that race -> where a barrier is missing between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anymetal.checker.scene import Between
from anymetal.nouns import Position
from anymetal.passes.check.order import Flow, LoopLines, Point, reachable

Chain = tuple[Position, ...]
"""The author's places of one instruction: from the innermost inlined function to the kernel."""


@dataclass(frozen=True)
class Reached:
    """An access in the kernel's flow; `updates` is the number of the site whose place it writes."""

    point: Point
    chain: Chain
    updates: int | None = None


@dataclass(frozen=True)
class Loop:
    """A loop with the author's places of its first and last line."""

    blocks: frozenset[int]
    header: int
    start: Chain
    last: Chain


@dataclass(frozen=True)
class ProgramOrder:
    """The flow of a kernel and, by site number, where its accesses of shared memory are."""

    flow: Flow
    loops: tuple[Loop, ...]
    sites: dict[int, Reached]

    def between(self, one: int, other: int, *, exactly: bool) -> Between:
        """How two sites that race lie to each other. Where the first is not `exactly` known, it is
        the last of several reads, which may be the second thread's own."""
        a, b = self.sites.get(one), self.sites.get(other)
        if a is None or b is None:
            return Between("unknown")
        if exactly and self._is_update(one, other):
            return Between("update", a.chain[0] if a.chain else None)
        common = [loop for loop in self.loops if {a.point.block, b.point.block} <= loop.blocks]
        for first, second in ((a, b), (b, a)):
            if reachable(self.flow, first.point, second.point, self._back_edges(common)):
                return self._ahead(first, second, common)
        return self._around(a, b, common)

    def _is_update(self, one: int, other: int) -> bool:
        """Whether both are the two halves of `x[i] += y`, or one of them twice."""
        pair = {one, other}
        return any(
            site.updates is not None and pair <= {number, site.updates}
            for number, site in self.sites.items()
        )

    def _ahead(self, first: Reached, second: Reached, common: list[Loop]) -> Between:
        level = _level(first.chain, second.chain)
        left = self._outermost(first, second)
        entered = self._outermost(second, first)
        start = _at(left.last if left else first.chain, level)
        end = _at(entered.start if entered else second.chain, level)
        inner = common[-1] if common else None
        if inner and reachable(self.flow, second.point, first.point):
            return Between("ahead and around", start, end, _at(inner.start, level))
        return Between("ahead", start, end)

    def _around(self, a: Reached, b: Reached, common: list[Loop]) -> Between:
        level = _level(a.chain, b.chain)
        places = (_at(a.chain, level), _at(b.chain, level))
        for loop in reversed(common):
            inside = frozenset(
                (block, target)
                for block, targets in enumerate(self.flow.successors)
                for target in targets
                if block in loop.blocks and target not in loop.blocks
            )
            if reachable(self.flow, a.point, b.point, inside) or reachable(
                self.flow, b.point, a.point, inside
            ):
                return Between("around", *places, _at(loop.start, level))
        return Between("apart", *places)

    def _outermost(self, of: Reached, other: Reached) -> Loop | None:
        """The outermost loop that has one of them in it and not the other."""
        own = (loop for loop in self.loops if of.point.block in loop.blocks)
        return next((loop for loop in own if other.point.block not in loop.blocks), None)

    def _back_edges(self, loops: list[Loop]) -> frozenset[tuple[int, int]]:
        return frozenset(
            (block, loop.header)
            for loop in loops
            for block in loop.blocks
            if loop.header in self.flow.successors[block]
        )


def _level(one: Chain, other: Chain) -> int:
    """How many functions deep the two are in the same one: places behind it are calls in common."""
    depth = 0
    for mine, yours in zip(reversed(one), reversed(other), strict=False):
        depth += 1
        if mine != yours:
            break
    return depth


def _at(chain: Chain, level: int) -> Position | None:
    """The place in the function of a level: the line itself, or the call that leads there."""
    if not chain or not level:
        return None
    return chain[-level] if level <= len(chain) else chain[0]


def order_data(order: ProgramOrder) -> dict[str, Any]:
    """As the store keeps it."""
    return {
        "successors": order.flow.successors,
        "barriers": order.flow.barriers,
        "loops": [
            [sorted(loop.blocks), loop.header, _listed(loop.start), _listed(loop.last)]
            for loop in order.loops
        ],
        "sites": [
            [number, site.point.block, site.point.step, _listed(site.chain), site.updates]
            for number, site in order.sites.items()
        ],
    }


def order_from(data: dict[str, Any]) -> ProgramOrder:
    """What `order_data` was given."""
    return ProgramOrder(
        Flow(data["successors"], data["barriers"], []),
        tuple(
            Loop(frozenset(blocks), header, _chain(start), _chain(last))
            for blocks, header, start, last in data["loops"]
        ),
        {
            number: Reached(Point(block, step), _chain(chain), updates)
            for number, block, step, chain, updates in data["sites"]
        },
    )


def loops_of(lines: list[LoopLines], chain: Any) -> tuple[Loop, ...]:
    """Loops with the author's places for LLVM's."""
    return tuple(
        Loop(line.blocks, line.header, chain(line.start), chain(line.last)) for line in lines
    )


def _listed(chain: Chain) -> list[list[Any]]:
    return [[place.file, place.line, place.column] for place in chain]


def _chain(rows: list[list[Any]]) -> Chain:
    return tuple(Position(*row) for row in rows)
