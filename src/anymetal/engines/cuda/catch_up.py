"""Lanes wait for each other where Metal's author sees them meet, and the hardware does not.

Lanes that a branch parted run together again where all ways from it meet. clang moves that place
away: `break` jumps past the test that follows the loop, and lanes for which `||` is decided at once
enter the branch without those that still ask. There a part of the code (`inside`) is left to
several places, and each lane that entered it waits, where it leaves, for all that entered with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from anymetal.engines.cuda.together import EVERYONE, HERE, Lanes
from anymetal.ir import I32, Block, Builder, Function, Instruction, Module, Operand, i32
from anymetal.ir.flow import Loop, graph_of, loop_aware_order, predecessors
from anymetal.ir.grammar import Parts

_MATCH = "llvm.nvvm.match.any.sync.i32"


@dataclass(frozen=True)
class _Region:
    """Blocks that lanes enter together; `key` is its first one, and `before` stands in front."""

    key: str
    before: str
    inside: frozenset[str]


_Waits = dict[str, _Region]  # the regions that lanes wait behind, by the results of the waits


def catch_up(module: Module, function: Function) -> dict[str, Operand]:
    """Inserts the waits, for collectives that ask who is there; returns the lanes of the blocks
    behind them."""
    if not any(True for _ in function.calls(HERE)):
        return {}
    done: set[str] = set()
    waits: _Waits = {}
    while (region := next(_Search(function).regions(done), None)) is not None:
        done.add(region.key)
        _rewrite(function, region, waits)
        module.declare(_MATCH, I32, [I32, I32])
    return {
        block.label: Operand(I32, i.result)
        for block in function.blocks
        for i in block.instructions
        if i.result in waits
    }


class _Search:
    def __init__(self, function: Function) -> None:
        self._function = function
        self._lanes = Lanes(function)
        self._graph = graph_of(function)
        self._before = predecessors(self._graph)
        self._order, self._loops = loop_aware_order(self._graph, function.entry.label)
        self._asking = {
            block.label
            for block in function.blocks
            if block.label in self._lanes.apart
            and any(i.callee == HERE for i in block.instructions)
        }

    def regions(self, done: set[str]) -> Iterator[_Region]:
        if not self._asking:
            return
        for loop in self._loops:
            if loop.header not in done and (found := self._of_loop(loop)):
                yield found
        for label in self._order:
            if label not in done and self._parts(label) and (found := self._of_branch(label)):
                yield found

    def _parts(self, label: str) -> bool:
        """Whether lanes may go different ways behind a block."""
        names = self._function.block(label).terminator.names
        return len(set(self._graph[label])) > 1 and not self._lanes.differing.isdisjoint(names)

    def _of_loop(self, loop: Loop) -> _Region | None:
        """A loop that lanes leave to several places, in different rounds."""
        leaving = [b for b in loop.blocks if not set(self._graph[b]) <= loop.blocks]
        targets = {t for b in leaving for t in self._graph[b]} - loop.blocks
        entering = [b for b in self._before[loop.header] if b not in loop.blocks]
        if len(targets) < 2 or len(entering) != 1 or not any(map(self._parts, leaving)):
            return None
        end: str | None = loop.header
        while end in loop.blocks:
            end = self._lanes.meeting.get(end)
        asks = self._reached(targets, {end}) & self._asking
        return _Region(loop.header, entering[0], loop.blocks) if asks else None

    def _of_branch(self, label: str) -> _Region | None:
        """A branch one way of which leads into the other."""
        end = self._lanes.meeting.get(label)
        ways = [self._reached([target], {end, label}) for target in set(self._graph[label])]
        common = frozenset.intersection(*ways)
        everywhere = frozenset.union(*ways)
        if not common or any(label in self._graph[b] for b in everywhere):
            return None
        first = next(one for one in self._order if one in common)
        leading = {b for b in everywhere - {first} if first in self._reached([b], {end, label})}
        inside = frozenset((label, *leading))
        alone = all(set(self._before[b]) <= inside for b in leading)
        asks = self._reached([first], {end, label}) & self._asking
        return _Region(label, label, inside) if alone and asks else None

    def _reached(self, starts: Iterable[str], without: set[str | None]) -> frozenset[str]:
        waiting, found = list(starts), set()
        while waiting:
            label = waiting.pop()
            if label not in found and label not in without:
                found.add(label)
                waiting += self._graph[label]
        return frozenset(found)


# --- code -----------------------------------------------------------------------------------------


def _rewrite(function: Function, region: _Region, waits: _Waits) -> None:
    """Each lane that leaves waits for all that entered, and learns which go the same way."""
    everyone = _who_enters(function, region)
    graph = graph_of(function)
    leaving: dict[str, list[str]] = {}
    for label in (block.label for block in function.blocks if block.label in region.inside):
        for target in dict.fromkeys(graph[label]):
            if target not in region.inside:
                leaving.setdefault(target, []).append(label)
    before = predecessors(graph)
    for number, (target, sources) in enumerate(leaving.items()):
        block = function.block(target)
        if not set(before[target]) <= set(sources):
            block = block_between(function, sources, block)
        made: list[Instruction] = []
        met = Builder(function.fresh, into=made).call(I32, _MATCH, [everyone, i32(number)])
        place = _place_of_wait(block, region, waits)
        block.instructions[place:place] = made
        waits[met.text] = region


def _place_of_wait(block: Block, region: _Region, waits: _Waits) -> int:
    """Behind the waits of regions inside this one, before those of others: lanes that leave an
    inner one alone, to come to the outer one's end later, must not be waited for there first."""
    place = next(n for n, i in enumerate(block.instructions) if i.opcode != "phi")
    for number, instruction in enumerate(block.instructions):
        other = waits.get(instruction.result or "")
        if other is not None and other.inside < region.inside:
            place = number + 1
    return place


def _who_enters(function: Function, region: _Region) -> Operand:
    """The lanes that are there before a region, asked in a block that leads nowhere else."""
    block = function.block(region.before)
    apart = region.before in Lanes(function).apart
    if region.before != region.key and len(set(block.successors)) > 1:
        block = block_between(function, [block.label], function.block(region.key))
        apart = True
    if not apart:
        return EVERYONE
    made: list[Instruction] = []
    here = Builder(function.fresh, into=made).call(I32, HERE, [])
    block.insert_before(block.terminator, made)
    return here


def block_between(function: Function, sources: list[str], target: Block) -> Block:
    """A block through which some of its predecessors come to another one."""
    label = function.fresh("am.met")[1:]
    made: list[Instruction] = []
    for phi in target.phis:
        coming = [pair for pair in phi.incoming() if pair[1] in sources]
        staying = [pair for pair in phi.incoming() if pair[1] not in sources]
        name = function.fresh("am")
        made.append(phi.changed(_incoming(coming), name))
        joined = _incoming([*staying, (Operand(phi.type, name), label)])
        phi.operands, phi.labels = joined["operands"], joined["labels"]
    Builder(function.fresh, into=made).jump(target.label)
    for source in sources:
        function.block(source).terminator.redirect(target.label, label)
    between = Block(label, made)
    function.blocks.insert(function.blocks.index(target), between)
    return between


def _incoming(pairs: list[tuple[Operand, str]]) -> Parts:
    return Parts(operands=tuple(o for o, _ in pairs), labels=tuple(label for _, label in pairs))
