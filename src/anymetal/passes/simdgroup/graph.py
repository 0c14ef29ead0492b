"""The control flow of a kernel: block order, loops, reconvergence points and join points."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from anymetal.ir.flow import (
    Graph,
    Loop,
    immediate_dominators,
    loop_aware_order,
    predecessors,
)

# The virtual exit behind every return: where lanes that return in different blocks reconverge.
EXIT = ""


class NotVectorisable(Exception):
    """Why a kernel cannot run as vectors; the coroutine engine takes it."""


@dataclass(frozen=True)
class Meeting:
    """What a divergent branch causes: join points, whose phis mix lanes, and loops that lanes leave
    in different iterations."""

    joins: frozenset[str]
    left: tuple[Loop, ...]


class Flow:
    """Questions about one function's graph, in which loops have one latch and one entry."""

    def __init__(self, graph: Graph, entry: str, barriers: Collection[str] = ()) -> None:
        self.entry = entry
        self.successors = graph
        self.predecessors = predecessors(graph)
        self.order, self.loops = loop_aware_order(graph, entry)
        self._meeting_points = self._post_dominators()
        if barriers:
            self._move_ways_out(barriers)
        self.rank = {label: number for number, label in enumerate(self.order)}
        self._refuse_irreducible()

    def _move_ways_out(self, barriers: Collection[str]) -> None:
        """Moves blocks that reach a return without a barrier directly behind their predecessors.

        Lanes on such a path must return before the others pass the next barrier, which may stand
        in the loop that they have left.
        """
        ahead = self._leading_to(barriers)
        stuck = ahead | self._leading_to({label for loop in self.loops for label in loop.blocks})
        moved: set[str] = set()
        for label in [label for label in self.order if label not in stuck]:
            before = self.predecessors[label]
            if not before or self._is_meeting_point(label, moved):
                continue
            if all(b in moved or (b in ahead and self._parts_for_good(b)) for b in before):
                moved.add(label)
                self.order.remove(label)
                self.order.insert(max(map(self.order.index, before)) + 1, label)

    def _leading_to(self, blocks: Collection[str]) -> set[str]:
        """Blocks from which one of these can be reached, and these."""
        found, pending = set(blocks), list(blocks)
        while pending:
            for before in self.predecessors[pending.pop()]:
                if before not in found:
                    found.add(before)
                    pending.append(before)
        return found

    def _is_meeting_point(self, label: str, moved: Collection[str]) -> bool:
        """Whether a block is the reconvergence point of a branch that stays in its place."""
        return any(
            self._meeting_points[other] == label and len(targets) > 1 and other not in moved
            for other, targets in self.successors.items()
        )

    def _parts_for_good(self, label: str) -> bool:
        """Whether lanes that diverge here reconverge at a return, or behind it, only."""
        meeting = self._meeting_points[label]
        ends = meeting == EXIT or not self.successors[meeting]
        return len(self.successors[label]) > 1 and ends

    def _refuse_irreducible(self) -> None:
        for loop in self.loops:
            for label in loop.blocks:
                if label == loop.header:
                    continue
                if any(before not in loop.blocks for before in self.predecessors[label]):
                    raise NotVectorisable("a loop is entered in more than one place")

    def innermost_loop(self, label: str) -> Loop | None:
        inside = [loop for loop in self.loops if label in loop.blocks]
        return min(inside, key=lambda loop: len(loop.blocks), default=None)

    def exits(self, loop: Loop) -> list[str]:
        """The loop's exit blocks: outside it, with a predecessor inside."""
        targets = (t for label in loop.blocks for t in self.successors[label])
        return list(dict.fromkeys(t for t in targets if t not in loop.blocks))

    def meeting_point(self, label: str) -> str:
        """Where lanes reconverge after a block: its immediate post-dominator, perhaps EXIT."""
        return self._meeting_points[label]

    def _post_dominators(self) -> dict[str, str]:
        """Immediate post-dominators: dominators of the reversed graph, from EXIT."""
        returns = [label for label in self.order if not self.successors[label]]
        found = immediate_dominators({EXIT: returns, **self.predecessors}, EXIT)
        if not found.keys() >= set(self.order):
            raise NotVectorisable("a loop never ends")
        return found

    def between(self, label: str) -> frozenset[str]:
        """Blocks that lanes may execute after a branch in `label` before they reconverge."""
        end = self.meeting_point(label)
        found: set[str] = set()
        pending = [t for t in self.successors[label] if t != end]
        while pending:
            block = pending.pop()
            if block not in found:
                found.add(block)
                pending.extend(t for t in self.successors[block] if t != end)
        return frozenset(found)

    def divergence(self, label: str) -> Meeting:
        """The consequences of a divergent branch at the end of `label`."""
        joins: set[str] = set()
        left: list[Loop] = []
        self._spread(self.successors[label], self.innermost_loop(label), joins, left)
        return Meeting(frozenset(joins), tuple(left))

    def _spread(
        self, starts: Iterable[str], loop: Loop | None, joins: set[str], left: list[Loop]
    ) -> None:
        """Follows paths from `starts` within one iteration of `loop` to where two of them join."""
        way: dict[str, str] = {}
        continues = False
        leaves: list[str] = []

        def arrive(block: str, origin: str) -> None:
            nonlocal continues
            if loop is not None and block == loop.header:
                continues = True
                return
            if loop is not None and block not in loop.blocks:
                leaves.append(block)
            if way.setdefault(block, origin) != origin:
                joins.add(block)
                way[block] = block

        for start in starts:
            arrive(start, start)
        for block in self.order[min(map(self.rank.__getitem__, way), default=0) :]:
            if block not in way or (loop is not None and block not in loop.blocks):
                continue
            for target in self.successors[block]:
                if self.rank[target] > self.rank[block] or (
                    loop is not None and target == loop.header
                ):
                    arrive(target, way[block])
        if loop is None or not leaves:
            return
        if continues or len(set(leaves)) > 1:
            if continues:
                left.append(loop)
                joins.update(self.exits(loop))
            outer = self._around(loop)
            starts_outside = self.exits(loop) if continues else leaves
            self._spread(dict.fromkeys(starts_outside), outer, joins, left)

    def _around(self, loop: Loop) -> Loop | None:
        outside = [other for other in self.loops if loop.blocks < other.blocks]
        return min(outside, key=lambda other: len(other.blocks), default=None)
