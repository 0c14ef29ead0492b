"""Writes the function that runs a kernel for the 32 lanes of a simdgroup at once.

There are two kinds of copies of a kernel's blocks. While all lanes are active and no branch
diverges, the full copy runs: the kernel's own control flow, with vectors in place of values. After
a divergent branch a masked copy runs, up to where the lanes reconverge: each block under a mask of
its own, in an order that keeps loops contiguous; then the full copy continues. A simdgroup with
fewer than 32 threads, or of which some lanes have returned, runs in a masked copy of the whole
kernel.

Values that are live in more than one block go through variables, which LLVM turns into registers;
in masked copies only phis must preserve the values of inactive lanes.

Loops in loops have masked copies in masked copies. In the long form of a kernel, for one that would
be too much for LLVM otherwise, lanes that diverge in an inner loop run in the copy that a loop
around it has of the same blocks: up to there they pass blocks in which no lane is.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from anymetal.ir import Block, Function, Instruction, Operand, Signature, boolean, i32
from anymetal.ir.flow import Loop
from anymetal.passes.simdgroup.analysis import Analysis
from anymetal.passes.simdgroup.block import BlockWriter, Scope
from anymetal.passes.simdgroup.graph import EXIT, NotVectorisable
from anymetal.passes.simdgroup.positions import live_lanes, read_machine
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.passes.simdgroup.slots import Slot, Slots
from anymetal.passes.simdgroup.values import MASK, NO_LANE, Code, Value


class TooLong(NotVectorisable):
    """The code would be longer than it may be."""

    def __init__(self) -> None:
        super().__init__("its vector code would be so long that compiling it takes seconds")


@dataclass
class MaskedCopy:
    """A masked copy of blocks, shared by all branches that diverge and reconverge in one iteration
    of a loop.

    `ends` are the blocks where all lanes may have reconverged: there the full copy continues. The
    copy outside all loops (`loop` is None) also serves simdgroups that are never complete.
    """

    number: int
    loop: Loop | None
    members: set[str] = field(default_factory=set)
    ends: set[str] = field(default_factory=set)
    masks: dict[str, Operand] = field(default_factory=dict)  # the variable of each block's mask


class Vectoriser:
    """Vectorises one kernel for one shape of threadgroups."""

    def __init__(
        self, analysis: Analysis, shape: GroupShape, heaviest: int, *, is_long: bool = False
    ) -> None:
        kernel = analysis.kernel
        self._kernel = kernel
        self._heaviest = heaviest
        self._flow = kernel.flow
        self._shape = shape
        self._code = Code(kernel.types, is_long=is_long)
        self._slots = Slots(self._code, kernel, analysis.facts)
        self._block = BlockWriter(self._code, analysis, self._slots)
        self._copies: dict[Loop | None, MaskedCopy] = {}
        self._shared = self._shared_copies(analysis.divergent) if is_long else {}

    @property
    def is_long(self) -> bool:
        return self._code.is_long

    @property
    def has_barriers(self) -> bool:
        return self._block.has_barriers

    @property
    def functions(self) -> list[Function]:
        """Further functions that the body calls."""
        return list(self._code.functions.values())

    @property
    def declarations(self) -> list[Signature]:
        return list(self._code.declarations.values())

    def blocks(self) -> list[Block]:
        """The body of the function `(ptr buffers, ptr self)`."""
        code = self._code
        self._enter()
        for label in self._flow.order:
            self._write_full(label)
            self._refuse_too_long()
        for copy in self._copies.values():
            self._write_copy(copy)
        code.label("am.done")
        code.ret()
        return code.finish()

    def _refuse_too_long(self) -> None:
        if self._code.weight > self._heaviest:
            raise TooLong

    # ---- entry -------------------------------------------------------------------------------

    def _enter(self) -> None:
        code = self._code
        self._block.machine.update(read_machine(code, self._kernel.self, self._shape))
        if self._shape.complete:
            code.jump("full.0")
            return
        whole = self._copy(None)
        whole.members.update(self._flow.order)
        mask, full = live_lanes(code)
        code.branch(full, "full.0", "am.partial")
        code.label("am.partial")
        code.store(mask, self._mask(whole, self._flow.entry))
        code.jump(self._guard(whole, self._flow.entry))

    # ---- the full copy -----------------------------------------------------------------------

    def _full_name(self, label: str) -> str:
        return f"full.{self._flow.rank[label]}"

    def _write_full(self, label: str) -> None:
        code = self._code
        code.label(self._full_name(label))
        scope = Scope(label, None)
        self._block.write(scope)
        terminator = self._kernel.blocks[label][-1]
        if terminator.opcode == "unreachable":
            code.unreachable()
        elif terminator.opcode == "ret":
            code.jump("am.done")
        elif not terminator.operands:
            self._full_edge(scope, terminator.labels[0])
        else:
            self._full_branch(scope, terminator)

    def _full_edge(self, scope: Scope, target: str) -> None:
        with self._code.aside():
            self._bring(self._brought(scope, target), None, None)
        self._code.jump(self._full_name(target))

    def _full_branch(self, scope: Scope, terminator: Instruction) -> None:
        code = self._code
        condition = self._block.operand(terminator.operands[0], scope)
        yes, no = terminator.labels
        known = condition.facts.values
        if known is not None and condition.facts.is_uniform:
            self._full_edge(scope, yes if known[0] else no)
            return
        names = [code.fresh("yes"), code.fresh("no"), code.fresh("mixed"), code.fresh("some")]
        if condition.facts.is_uniform:
            code.branch(code.scalar(condition), names[0], names[1])
        elif condition.agreed is not None and condition.vector is None:
            agreed, truth = condition.agreed()
            unclear = code.fresh("unclear")
            code.branch(agreed, names[0] if truth else names[1], unclear)
            code.label(unclear)
            with code.aside():
                self._ask_all(scope, terminator, code.vector(condition), names)
        else:
            self._ask_all(scope, terminator, code.vector(condition), names)
        for name, target in zip(names, (yes, no), strict=False):
            code.label(name)
            self._full_edge(scope, target)

    def _ask_all(
        self, scope: Scope, terminator: Instruction, chosen: Operand, names: list[str]
    ) -> None:
        """All lanes to one target, or each to its own."""
        code = self._code
        bits = code.bits(chosen)
        code.branch(code.icmp("eq", bits, i32(-1)), names[0], names[3])
        code.label(names[3])
        code.branch(code.icmp("eq", bits, i32(0)), names[1], names[2])
        code.label(names[2])
        with code.aside():
            self._diverge(scope, terminator, chosen)

    def _diverge(self, scope: Scope, terminator: Instruction, chosen: Operand) -> None:
        """A divergent branch: from the full copy into a masked one, each lane to its own target."""
        code = self._code
        copy = self._copy_after(scope.label)
        brought = [self._brought(scope, target) for target in terminator.labels]
        masks = (chosen, code.inverted(chosen))
        for target, values, mask in zip(terminator.labels, brought, masks, strict=True):
            self._bring(values, mask, boolean(True))
            self._add_lanes(copy, target, mask)
        first = min(terminator.labels, key=self._flow.rank.__getitem__)
        code.jump(self._guard(copy, self._entered_at(copy, first)))

    def _entered_at(self, copy: MaskedCopy, label: str) -> str:
        """The header of the outermost loop of a copy around a block: loops are entered there."""
        loops = [
            loop
            for loop in self._flow.loops
            if label in loop.blocks and loop.blocks <= copy.members
        ]
        largest = max(loops, key=lambda loop: len(loop.blocks), default=None)
        return largest.header if largest else label

    def _brought(self, scope: Scope, target: str) -> list[tuple[Slot, list[Operand]]]:
        """The incoming values of a target's phis on an edge, read before any phi is written."""
        brought = []
        for phi in self._kernel.phis(target):
            assert phi.result is not None
            slot = self._slots[phi.result]
            value = self._block.operand(phi.operands[phi.labels.index(scope.label)], scope)
            brought.append((slot, self._slots.scalars(slot, value)))
        return brought

    def _bring(
        self, brought: list[tuple[Slot, list[Operand]]], mask: Operand | None, taken: Operand | None
    ) -> None:
        for slot, scalars in brought:
            self._slots.write(slot, scalars, mask, taken)

    # ---- masked copies -----------------------------------------------------------------------

    def _copy(self, loop: Loop | None) -> MaskedCopy:
        if loop not in self._copies:
            self._copies[loop] = MaskedCopy(len(self._copies), loop)
        return self._copies[loop]

    def _shared_copies(self, divergent: Collection[str]) -> dict[Loop | None, Loop | None]:
        """Loops whose masked copy is part of that of a loop around them, or of all blocks (None):
        the largest of those."""
        members: dict[Loop | None, set[str]] = {}
        if not self._shape.complete:
            members[None] = set(self._flow.order)
        for label in (label for label in self._flow.order if label in divergent):
            between = self._flow.between(label)
            members.setdefault(self._iteration(label, between), set()).update(between)
        around = sorted(members, key=_extent, reverse=True)
        shared: dict[Loop | None, Loop | None] = {}
        for inner in filter(None, members):
            outside = (one for one in around if one is None or inner.blocks < one.blocks)
            having = [one for one in outside if members[inner] <= members[one]]
            if having:
                shared[inner] = having[0]
        return shared

    def _iteration(self, label: str, between: frozenset[str]) -> Loop | None:
        """The innermost loop in one iteration of which lanes diverge after a block and
        reconverge."""
        end = self._flow.meeting_point(label)
        around = [
            loop
            for loop in self._flow.loops
            if label in loop.blocks and end in loop.blocks and loop.header not in between
        ]
        return min(around, key=lambda loop: len(loop.blocks), default=None)

    def _copy_after(self, label: str) -> MaskedCopy:
        """The masked copy for lanes that diverge at the end of a block."""
        end, between = self._flow.meeting_point(label), self._flow.between(label)
        loop = self._iteration(label, between)
        copy = self._copy(self._shared.get(loop, loop))
        copy.members |= between
        if end != EXIT:
            self._refuse_early_end(between, end)
            copy.ends.add(end)
        return copy

    def _refuse_early_end(self, between: frozenset[str], end: str) -> None:
        """A reconvergence point is written once, so it comes after every block before it."""
        rank = self._flow.rank
        if max(map(rank.__getitem__, between), default=-1) > rank[end]:
            raise NotVectorisable("lanes would reconverge before all of them have arrived")

    def _mask(self, copy: MaskedCopy, label: str) -> Operand:
        if label not in copy.masks:
            copy.masks[label] = self._code.mask_variable()
        return copy.masks[label]

    def _guard(self, copy: MaskedCopy, label: str) -> str:
        return f"masked{copy.number}.{self._flow.rank[label]}"

    def _add_lanes(self, copy: MaskedCopy, target: str, mask: Operand) -> None:
        code, variable = self._code, self._mask(copy, target)
        before = code.load(MASK, variable)
        code.store(code.or_(before, mask), variable)

    def _write_copy(self, copy: MaskedCopy) -> None:
        code = self._code
        ordered = [
            label for label in self._flow.order if label in copy.members or label in copy.ends
        ]
        for position, label in enumerate(ordered):
            after = code.fresh("after")
            self._write_guarded(copy, label, after)
            self._refuse_too_long()
            code.label(after)
            for header in self._loops_ending(copy, ordered, position):
                onward = code.fresh("onward")
                again = code.any(code.load(MASK, self._mask(copy, header)))
                code.branch(again, self._guard(copy, header), onward)
                code.label(onward)
            if position + 1 < len(ordered):
                code.jump(self._guard(copy, ordered[position + 1]))
            elif copy.loop is None:
                code.jump("am.done")
            else:
                code.unreachable()

    def _write_guarded(self, copy: MaskedCopy, label: str, after: str) -> None:
        """One block, skipped where its mask is empty; where all lanes are active, the full copy
        takes over."""
        code, variable = self._code, self._mask(copy, label)
        code.label(self._guard(copy, label))
        mask = code.load(MASK, variable)
        code.store(NO_LANE, variable)
        bits = code.bits(mask)
        body = code.fresh("body")
        if label in copy.ends:
            together = code.fresh("apart")
            code.branch(code.icmp("eq", bits, i32(-1)), self._full_name(label), together)
            code.label(together)
            if label not in copy.members:
                code.jump(after)
                return
        code.branch(code.icmp("ne", bits, i32(0)), body, after)
        code.label(body)
        self._write_masked(copy, label, mask)
        code.jump(after)

    def _loops_ending(self, copy: MaskedCopy, ordered: list[str], position: int) -> list[str]:
        """Headers of the loops whose last block stands at `position`, innermost first."""
        ending = [
            loop
            for loop in self._flow.loops
            if loop.blocks <= copy.members
            and max(map(self._flow.rank.__getitem__, loop.blocks))
            == self._flow.rank[ordered[position]]
        ]
        return [loop.header for loop in sorted(ending, key=lambda loop: len(loop.blocks))]

    def _write_masked(self, copy: MaskedCopy, label: str, mask: Operand) -> None:
        scope = Scope(label, mask)
        self._block.write(scope)
        terminator = self._kernel.blocks[label][-1]
        if terminator.opcode in ("ret", "unreachable"):
            return
        edges = self._edges(scope, terminator, mask)
        brought = [self._brought(scope, target) for target, _, _ in edges]
        for (target, share, taken), values in zip(edges, brought, strict=True):
            self._bring(values, share, taken)
            self._add_lanes(copy, target, share)

    def _edges(
        self, scope: Scope, terminator: Instruction, mask: Operand
    ) -> list[tuple[str, Operand, Operand | None]]:
        """The edges out of a block: target, mask of the lanes that take it, whether it is taken."""
        if not terminator.operands:
            return [(terminator.labels[0], mask, None)]
        condition = self._block.operand(terminator.operands[0], scope)
        yes, no = terminator.labels
        known = condition.facts.values
        if known is not None and condition.facts.is_uniform:
            return [(yes if known[0] else no, mask, None)]
        return [
            (target, *self._share(scope, condition, wanted))
            for target, wanted in ((yes, True), (no, False))
        ]

    def _share(self, scope: Scope, condition: Value, wanted: bool) -> tuple[Operand, Operand]:
        """The mask of the lanes that take one edge of a branch, and whether any does."""
        code = self._code
        assert scope.mask is not None
        if condition.facts.is_uniform:
            taken = code.scalar(condition)
            if not wanted:
                taken = code.xor(taken, boolean(True))
            return code.select(taken, scope.mask, NO_LANE), taken
        chosen = code.vector(condition)
        share = code.both(scope.mask, chosen if wanted else code.inverted(chosen))
        return share, code.any(share)


def _extent(loop: Loop | None) -> float:
    return math.inf if loop is None else len(loop.blocks)
