"""Lanes that run a block together are counted, not asked for, where a branch parted them.

The hardware says which lanes happen to run together, and promises little: behind a loop with
atomics, or one that can end in an assertion (the clock's), lanes go on without those that are still
in it. Behind such loops collectives get what lanes voted for at the branches that part them:

- the two ways of a branch: the lanes that vote for it, of those that come there;
- where all ways from a block meet: the lanes that were at that block;
- a round of a loop: the lanes that vote to stay; behind it, those that entered;
- where a part of the code is left to several places: see catch_up.py.

Such a vote waits for the lanes it names. Elsewhere (ways that cross) the hardware is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.engines.cuda.catch_up import block_between
from anymetal.engines.cuda.together import EVERYONE, HERE, Lanes, reached
from anymetal.engines.cuda.watch import WATCH, WATCH_APART
from anymetal.ir import I1, I32, Block, Builder, Function, Instruction, Module, Operand, boolean
from anymetal.ir.flow import Loop, graph_of, immediate_dominators, loop_aware_order, predecessors

VOTE = "llvm.nvvm.vote.ballot.sync"


def count_lanes(module: Module, function: Function, met: dict[str, Operand]) -> None:
    """Rewrites the questions of blocks that a part of the lanes may run, where the hardware may be
    wrong; `met` has the lanes of the blocks that catch_up.py let them meet in."""
    lanes = Lanes(function)
    doubtful = _behind_loose_loops(function, lanes.apart) | reached(graph_of(function), list(met))
    doubtful &= lanes.apart
    asking = [block for block in function.blocks if block.label in doubtful and _asks(block)]
    if not asking:
        return
    if _give_loops_one_way_round(function, lanes.apart):
        lanes = Lanes(function)
    masks = _Masks(function, lanes, met)
    for block in asking:
        mask = masks.of(block.label)
        if mask is not None:
            _vote_instead(module, function, block, mask)
    if any(map(_asks, asking)):
        _let_clocks_come_back(function, lanes.apart)


def wait_for_everyone(module: Module, function: Function) -> None:
    """Where all lanes come together again behind a branch that parted them, those that ask wait for
    the rest: the hardware may be late in letting them run together."""
    if not any(map(_asks, function.blocks)):
        return
    apart = Lanes(function).apart
    behind = reached(graph_of(function), list(apart)) - apart
    for block in function.blocks:
        if block.label in behind and _asks(block):
            _vote_instead(module, function, block, EVERYONE)


def _let_clocks_come_back(function: Function, apart: set[str]) -> None:
    """What could not be counted is asked for, and the hardware needs places where lanes meet."""
    for block in function.blocks:
        for instruction in block.instructions if block.label in apart else ():
            if instruction.callee == WATCH:
                instruction.target = f"@{WATCH_APART}"


def _behind_loose_loops(function: Function, apart: set[str]) -> set[str]:
    """What comes behind loops that lanes leave in different rounds, and that may wait for other
    lanes: the assembler lets those that left go on (YIELD)."""
    graph = graph_of(function)
    loose = {block.label for block in function.blocks if any(map(_may_wait, block.instructions))}
    behind: set[str] = set()
    for loop in loop_aware_order(graph, function.entry.label)[1]:
        if not loop.blocks.isdisjoint(apart) and not loop.blocks.isdisjoint(loose):
            behind |= reached(graph, list(loop.blocks))
    return behind


def _may_wait(instruction: Instruction) -> bool:
    """Whether a loop with it looks as if it waited for somebody: atomics, and the clock."""
    if instruction.opcode == "call":
        return instruction.callee in (WATCH, WATCH_APART)
    if instruction.opcode in ("load", "store"):
        return instruction.is_volatile or instruction.is_atomic
    return instruction.opcode in ("atomicrmw", "cmpxchg")


def _asks(block: Block) -> bool:
    return any(i.callee == HERE for i in block.instructions)


def _vote_instead(module: Module, function: Function, block: Block, mask: Operand) -> None:
    """Also where the lanes are known: some may have ended since."""
    for number, instruction in enumerate(block.instructions):
        if instruction.callee == HERE:
            build = Builder(function.fresh)
            build.call(I32, VOTE, [mask, boolean(True)], name=str(instruction.result))
            block.instructions[number] = build.made[0]
    module.declare(VOTE, I32, [I32, I1])


def _give_loops_one_way_round(function: Function, apart: set[str]) -> bool:
    """Every loop is entered from one block, and one block leads back."""
    graph = graph_of(function)
    before = predecessors(graph)
    changed = False
    for loop in loop_aware_order(graph, function.entry.label)[1]:
        if loop.header in apart:
            inside = [b for b in dict.fromkeys(before[loop.header]) if b in loop.blocks]
            outside = [b for b in dict.fromkeys(before[loop.header]) if b not in loop.blocks]
            for sources in (inside, outside):
                if len(sources) > 1:
                    block_between(function, sources, function.block(loop.header))
                    changed = True
    return changed


@dataclass(frozen=True)
class _Rule:
    """The lanes of a block are those of `of` that go on to `to`, or all of them; those of a loop's
    header besides come from its last block, `back`."""

    of: str
    to: str | None = None
    back: str | None = None


class _Masks:
    def __init__(self, function: Function, lanes: Lanes, known: dict[str, Operand]) -> None:
        self._function = function
        self._lanes = lanes
        self._blocks = {block.label: block for block in function.blocks}
        graph = graph_of(function)
        self._before = predecessors(graph)
        self._dominator = immediate_dominators(graph, function.entry.label)
        self._loops = loop_aware_order(graph, function.entry.label)[1]
        everyone = {label: EVERYONE for label in graph if label not in lanes.apart}
        self._found = {**known, **everyone}
        self._votes: dict[str, dict[str, Operand]] = {}
        self._rules = self._sound_rules(graph)

    def of(self, label: str) -> Operand | None:
        """The lanes that run a block together; None where that is not known."""
        if label not in self._found and label in self._rules:
            rule = self._rules[label]
            if rule.back is not None:
                return self._of_header(label, rule, rule.back)
            self._found[label] = self._given(rule.of, rule.to)
        return self._found.get(label)

    def _given(self, source: str, target: str | None) -> Operand:
        mask = self.of(source)
        assert mask is not None, source
        return mask if target is None else self._going(source, target, mask)

    def _of_header(self, label: str, rule: _Rule, back: str) -> Operand:
        name = self._function.fresh("am.lanes")
        mask = self._found[label] = Operand(I32, name)
        incoming = [(self._given(rule.of, label), rule.of), (self._given(back, label), back)]
        build = Builder(self._function.fresh)
        build.phi(I32, incoming, name=name)
        self._blocks[label].instructions.insert(0, build.made[0])
        return mask

    # ---- rules -------------------------------------------------------------------------------

    def _sound_rules(self, graph: dict[str, list[str]]) -> dict[str, _Rule]:
        """The rules that lead to blocks whose lanes are known."""
        found = {label: self._rule(label) for label in graph if label not in self._found}
        rules = {label: rule for label, rule in found.items() if rule is not None}
        while unsound := [
            label
            for label, rule in rules.items()
            if any(b and b not in rules and b not in self._found for b in (rule.of, rule.back))
        ]:
            for label in unsound:
                del rules[label]
        return rules

    def _rule(self, label: str) -> _Rule | None:
        loop = self._innermost(label)
        if loop is not None and loop.header == label:
            return self._rule_of_header(loop)
        dominator = self._dominator[label]
        left = self._outermost(dominator, label)
        if left is not None:
            header = self._rule_of_header(left)
            meets = self._meets(left.header, label, loop)
            return _Rule(header.of, left.header) if header and meets else None
        if set(self._before[label]) == {dominator}:
            return _Rule(dominator, label)
        return _Rule(dominator) if self._meets(dominator, label, loop) else None

    def _rule_of_header(self, loop: Loop) -> _Rule | None:
        before = self._before[loop.header]
        inside = [b for b in dict.fromkeys(before) if b in loop.blocks]
        outside = [b for b in dict.fromkeys(before) if b not in loop.blocks]
        entered = {b for b in loop.blocks if not set(self._before[b]) <= loop.blocks}
        if entered != {loop.header} or len(inside) != 1 or len(outside) != 1:
            return None
        return _Rule(outside[0], to=loop.header, back=inside[0])

    def _meets(self, start: str, end: str, loop: Loop | None) -> bool:
        """Whether all ways from a block come to another one in this round of a loop. One that
        passes it by ends at last, too, and its lanes may wait for the rest before."""
        waiting, seen = list(self._lanes.graph[start]), {start}
        while waiting:
            label = waiting.pop()
            if label == end:
                continue
            if loop is not None and (label == loop.header or label not in loop.blocks):
                return False
            if not self._lanes.graph[label]:
                return False
            if label in seen:
                continue
            seen.add(label)
            waiting += self._lanes.graph[label]
        return True

    def _innermost(self, label: str) -> Loop | None:
        return next((loop for loop in reversed(self._loops) if label in loop.blocks), None)

    def _outermost(self, label: str, without: str) -> Loop | None:
        """The outermost loop that has one block and not another."""
        return next((o for o in self._loops if label in o.blocks and without not in o.blocks), None)

    # ---- votes -------------------------------------------------------------------------------

    def _going(self, source: str, target: str, mask: Operand) -> Operand:
        """The lanes that go from one block to another."""
        block = self._blocks[source]
        end = block.terminator
        if len(set(end.labels)) < 2 or self._lanes.differing.isdisjoint(end.names):
            return mask
        votes = self._votes.setdefault(source, {})
        if target not in votes:
            build = Builder(self._function.fresh)
            votes[target] = self._vote(build, end, target, mask)
            block.insert_before(end, build.made)
        return votes[target]

    def _vote(self, build: Builder, end: Instruction, target: str, mask: Operand) -> Operand:
        default, *cases = end.labels
        if end.opcode == "br":
            goes = end.value if default == target else build.xor(end.value, boolean(True))
        else:
            goes = boolean(False)
            leads = default == target
            for case, label in zip(end.operands[1:], cases, strict=True):
                if (label == target) != leads:
                    goes = build.or_(goes, build.icmp("eq", end.value, case))
            if leads:
                goes = build.xor(goes, boolean(True))
        return build.call(I32, VOTE, [mask, goes])
