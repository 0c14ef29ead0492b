"""Writes the function that runs a kernel for 32 lanes at once.

There are two kinds of copies of a kernel's blocks. While all lanes are active and agree on every
branch, the full copy runs: the kernel's own control flow, with vectors in place of values. Where
lanes part, a masked copy of the blocks up to where they all meet again runs under a mask a block,
in an order in which loops stand together; then the full copy goes on. A simdgroup with fewer than
32 threads, or of which some lanes have returned, runs in a masked copy of the whole kernel.

Values that live in more than one block go through variables, which LLVM turns into registers; in
masked copies only phis need to keep the values of lanes that are elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anymetal.ir import Block, Function, Instruction, Operand, Signature, boolean, i32
from anymetal.ir.flow import Loop
from anymetal.passes.simdgroup.analysis import Analysis
from anymetal.passes.simdgroup.block import BlockWriter, Scope
from anymetal.passes.simdgroup.graph import EXIT, NotVectorisable
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.positions import live_lanes, read_machine
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.passes.simdgroup.slots import Slot, Slots
from anymetal.passes.simdgroup.values import MASK, NO_LANE, Code, Value


@dataclass
class Region:
    """A masked copy of blocks, shared by all branches that part and meet in one round of a loop.

    `ends` are the blocks where lanes may all be together again: there the full copy goes on. The
    region outside all loops (`loop` is None) also serves simdgroups that never are complete.
    """

    number: int
    loop: Loop | None
    members: set[str] = field(default_factory=set)
    ends: set[str] = field(default_factory=set)
    masks: dict[str, Operand] = field(default_factory=dict)  # the variable of each block's mask


class Vectoriser:
    """Vectorises one kernel for one shape of threadgroups."""

    def __init__(self, kernel: Kernel, shape: GroupShape, heaviest: int) -> None:
        self._kernel = kernel
        self._heaviest = heaviest
        self._flow = kernel.flow
        self._shape = shape
        self._code = Code(kernel.types)
        analysis = Analysis(kernel, shape)
        self._slots = Slots(self._code, kernel, analysis.facts)
        self._block = BlockWriter(self._code, analysis, self._slots)
        self._regions: dict[Loop | None, Region] = {}

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
        for region in self._regions.values():
            self._write_region(region)
        code.label("am.done")
        code.ret()
        return code.finish()

    def _refuse_too_long(self) -> None:
        if self._code.weight > self._heaviest:
            raise NotVectorisable(
                "its vector code would be so long that compiling it takes seconds"
            )

    # ---- entry -------------------------------------------------------------------------------

    def _enter(self) -> None:
        code = self._code
        self._block.machine.update(read_machine(code, self._kernel.self, self._shape))
        if self._shape.complete:
            code.jump("full.0")
            return
        whole = self._region(None)
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
        else:
            chosen = code.vector(condition)
            bits = code.bits(chosen)
            code.branch(code.icmp("eq", bits, i32(-1)), names[0], names[3])
            code.label(names[3])
            code.branch(code.icmp("eq", bits, i32(0)), names[1], names[2])
            code.label(names[2])
            with code.aside():
                self._part_ways(scope, terminator, chosen)
        for name, target in zip(names, (yes, no), strict=False):
            code.label(name)
            self._full_edge(scope, target)

    def _part_ways(self, scope: Scope, terminator: Instruction, chosen: Operand) -> None:
        """From the full copy into a masked one, each lane to the block it wants."""
        code = self._code
        region = self._region_after(scope.label)
        brought = [self._brought(scope, target) for target in terminator.labels]
        masks = (chosen, code.inverted(chosen))
        for target, values, mask in zip(terminator.labels, brought, masks, strict=True):
            self._bring(values, mask, boolean(True))
            self._add_lanes(region, target, mask)
        first = min(terminator.labels, key=self._flow.rank.__getitem__)
        code.jump(self._guard(region, self._entered_at(region, first)))

    def _entered_at(self, region: Region, label: str) -> str:
        """The header of the largest loop of a region around a block: loops are entered there."""
        loops = [
            loop
            for loop in self._flow.loops
            if label in loop.blocks and loop.blocks <= region.members
        ]
        largest = max(loops, key=lambda loop: len(loop.blocks), default=None)
        return largest.header if largest else label

    def _brought(self, scope: Scope, target: str) -> list[tuple[Slot, list[Operand]]]:
        """What an edge brings to the phis of its target. Read before any of them is written."""
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

    def _region(self, loop: Loop | None) -> Region:
        if loop not in self._regions:
            self._regions[loop] = Region(len(self._regions), loop)
        return self._regions[loop]

    def _region_after(self, label: str) -> Region:
        """The region for lanes that part at the end of a block."""
        end, between = self._flow.meeting_point(label), self._flow.between(label)
        around = [
            loop
            for loop in self._flow.loops
            if label in loop.blocks and end in loop.blocks and loop.header not in between
        ]
        region = self._region(min(around, key=lambda loop: len(loop.blocks), default=None))
        region.members |= between
        if end != EXIT:
            self._refuse_early_end(between, end)
            region.ends.add(end)
        return region

    def _refuse_early_end(self, between: frozenset[str], end: str) -> None:
        """Where lanes meet is written once; lanes that came later would be lost."""
        rank = self._flow.rank
        if max(map(rank.__getitem__, between), default=-1) > rank[end]:
            raise NotVectorisable("lanes would meet before all of them have come")

    def _mask(self, region: Region, label: str) -> Operand:
        if label not in region.masks:
            region.masks[label] = self._code.mask_variable()
        return region.masks[label]

    def _guard(self, region: Region, label: str) -> str:
        return f"masked{region.number}.{self._flow.rank[label]}"

    def _add_lanes(self, region: Region, target: str, mask: Operand) -> None:
        code, variable = self._code, self._mask(region, target)
        before = code.load(MASK, variable)
        code.store(code.or_(before, mask), variable)

    def _write_region(self, region: Region) -> None:
        code = self._code
        ordered = [
            label for label in self._flow.order if label in region.members or label in region.ends
        ]
        for position, label in enumerate(ordered):
            after = code.fresh("after")
            self._write_guarded(region, label, after)
            self._refuse_too_long()
            code.label(after)
            for header in self._loops_ending(region, ordered, position):
                onward = code.fresh("onward")
                again = code.any(code.load(MASK, self._mask(region, header)))
                code.branch(again, self._guard(region, header), onward)
                code.label(onward)
            if position + 1 < len(ordered):
                code.jump(self._guard(region, ordered[position + 1]))
            elif region.loop is None:
                code.jump("am.done")
            else:
                code.unreachable()

    def _write_guarded(self, region: Region, label: str, after: str) -> None:
        """One block, skipped where no lane wants it; where all do, the full copy takes over."""
        code, variable = self._code, self._mask(region, label)
        code.label(self._guard(region, label))
        mask = code.load(MASK, variable)
        code.store(NO_LANE, variable)
        bits = code.bits(mask)
        body = code.fresh("body")
        if label in region.ends:
            together = code.fresh("apart")
            code.branch(code.icmp("eq", bits, i32(-1)), self._full_name(label), together)
            code.label(together)
            if label not in region.members:
                code.jump(after)
                return
        code.branch(code.icmp("ne", bits, i32(0)), body, after)
        code.label(body)
        self._write_masked(region, label, mask)
        code.jump(after)

    def _loops_ending(self, region: Region, ordered: list[str], position: int) -> list[str]:
        """Headers of the loops whose last block stands at `position`, innermost first."""
        ending = [
            loop
            for loop in self._flow.loops
            if loop.blocks <= region.members
            and max(map(self._flow.rank.__getitem__, loop.blocks))
            == self._flow.rank[ordered[position]]
        ]
        return [loop.header for loop in sorted(ending, key=lambda loop: len(loop.blocks))]

    def _write_masked(self, region: Region, label: str, mask: Operand) -> None:
        scope = Scope(label, mask)
        self._block.write(scope)
        terminator = self._kernel.blocks[label][-1]
        if terminator.opcode in ("ret", "unreachable"):
            return
        ways = self._ways(scope, terminator, mask)
        brought = [self._brought(scope, target) for target, _, _ in ways]
        for (target, share, taken), values in zip(ways, brought, strict=True):
            self._bring(values, share, taken)
            self._add_lanes(region, target, share)

    def _ways(
        self, scope: Scope, terminator: Instruction, mask: Operand
    ) -> list[tuple[str, Operand, Operand | None]]:
        """The ways out of a block: target, the lanes that go there, whether there are any."""
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
        """The lanes that take one way out of a branch, and whether there are any."""
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
