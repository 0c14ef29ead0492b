"""Loops in which each lane walks along a row of its own, four elements in a turn.

`for (i = 0; i < 64; ++i) sum += q[i] * keys[lane * 64 + i]` reads 32 places far apart in each turn.
Of four turns at once each lane's reads are neighbours: 16 bytes that are loaded whole, and put in
order in registers (rows in memory.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from anymetal.ir import I64, Block, Builder, Function, Instruction, Operand, Parts, i64
from anymetal.passes.simdgroup.analysis import Analysis

_TURNS = 4
_WORD = 4  # bytes of an element
_LONGEST = 40  # instructions in a turn


@dataclass
class _Counted:
    """A loop of one block that counts by 1 a number of times known now, a multiple of four."""

    block: Block
    counter: Instruction  # the phi
    next: Instruction
    test: Instruction
    inside: set[str] = field(default_factory=set)  # the results of its instructions


def unroll_rows(function: Function, analysis: Analysis) -> bool:
    """Whether there was such a loop."""
    found = False
    outside = _Users(function)
    for block in function.blocks:
        loop = _counted(block)
        if loop is None or not any(_is_in_row(i, loop, analysis) for i in block.instructions):
            continue
        if not outside.see_into(block):
            along = {str(i.result) for i in block.instructions if _steps_along(i, loop, analysis)}
            block.instructions = _four_turns(function, loop, along)
            found = True
    return found


def _counted(block: Block) -> _Counted | None:
    last = block.terminator
    if last.opcode != "br" or block.label not in last.labels or len(last.labels) != 2:
        return None
    if len(block.instructions) > _LONGEST or not all(map(_is_plain, block.instructions)):
        return None
    made = {i.result: i for i in block.instructions if i.result is not None}
    test = made.get(last.operands[0].text)
    if test is None or test.opcode != "icmp":
        return None
    if any(str(test.result) in i.names for i in block.instructions[:-1]):
        return None
    step = made.get(test.operands[0].text)
    if step is None or step.opcode != "add" or step.operands[1].integer != 1:
        return None
    counter = made.get(step.operands[0].text)
    if counter is None or counter.opcode != "phi" or counter.type is not I64:
        return None
    loop = _Counted(block, counter, step, test, set(made))
    return loop if _is_whole(loop) else None


class _Users:
    """Which blocks use a value; looked up when somebody asks. What is unrolled keeps its users."""

    def __init__(self, function: Function) -> None:
        self._function = function

    @cached_property
    def _labels(self) -> dict[str, set[str]]:
        labels: dict[str, set[str]] = {}
        for block in self._function.blocks:
            for instruction in block.instructions:
                for name in instruction.names:
                    labels.setdefault(name, set()).add(block.label)
        return labels

    def see_into(self, block: Block) -> bool:
        """Whether another block uses what a turn begins with."""
        return any(self._labels.get(str(phi.result), set()) - {block.label} for phi in block.phis)


def _is_plain(instruction: Instruction) -> bool:
    if instruction.opcode == "call":
        return (instruction.callee or "").startswith("llvm.")
    return instruction.opcode not in ("store", "atomicrmw", "cmpxchg", "fence", "alloca")


def _is_whole(loop: _Counted) -> bool:
    """Whether it ends after a multiple of four turns, and only there."""
    label = loop.block.label
    stays = loop.block.terminator.labels.index(label) == (loop.test.predicate == "ne")
    starts = [value.integer for value, place in loop.counter.incoming() if place != label]
    end = loop.test.operands[1].integer
    steps = [value.text for value, place in loop.counter.incoming() if place == label]
    if loop.test.predicate not in ("eq", "ne") or steps != [loop.next.result]:
        return False
    if len(starts) != 1 or starts[0] is None or end is None:
        return False
    return not stays and end > starts[0] and (end - starts[0]) % _TURNS == 0


def _is_in_row(load: Instruction, loop: _Counted, analysis: Analysis) -> bool:
    """Whether lanes read each its own place, and in the next turn the one behind it."""
    if load.opcode != "load" or analysis.kernel.types.size(load.type) != _WORD:
        return False
    place = analysis.kernel.definitions.get(load.pointer.text, ("", None))[1]
    if place is None or not _steps_along(place, loop, analysis):
        return False
    facts = analysis.facts[str(place.result)]
    return not facts.is_uniform and not _is_contiguous(facts.offsets)


def _is_contiguous(offsets: tuple[int, ...] | None) -> bool:
    return offsets is not None and all(
        after - before in (0, _WORD) for before, after in pairwise(offsets)
    )


def _steps_along(place: Instruction, loop: _Counted, analysis: Analysis) -> bool:
    if place.opcode != "getelementptr" or len(place.operands) != 2 or place.element is None:
        return False
    start, index = place.operands
    is_element = analysis.kernel.types.size(place.element) == _WORD
    return is_element and index.text == loop.counter.result and start.text not in loop.inside


def _four_turns(function: Function, loop: _Counted, along: set[str]) -> list[Instruction]:
    """The loop's instructions four times; the last results keep their names, which others use.

    `along`: the addresses that step along with the loop, a word in a turn.
    """
    instructions, label = loop.block.instructions, loop.block.label
    phis = [i for i in instructions if i.opcode == "phi"]
    control = [loop.next, loop.test, instructions[-1]]
    body = [i for i in instructions if i not in phis and i not in control]
    build = Builder(function.fresh, into=list(phis))
    counter, after = loop.counter.operand(), str(loop.next.result)
    first: dict[str, Operand] = {}
    names: dict[str, Operand] = {}
    for turn in range(_TURNS):
        is_last = turn == _TURNS - 1
        before, names = names, {}
        for phi in phis if turn else ():
            carried = next(value for value, place in phi.incoming() if place == label)
            names[str(phi.result)] = before.get(carried.text, carried)
        names[after] = build.add(counter, i64(turn + 1), name=after if is_last else "")
        for instruction in body:
            name = instruction.result
            new = name if is_last or name is None else function.fresh("am")
            if turn and name in along:
                names[name] = build.offset(first[name], _WORD * turn, name=str(new))
                continue
            copy = instruction.changed(_renamed(instruction, names), result=new)
            build.made.append(copy)
            if name is not None:
                names[name] = copy.operand()
                first.setdefault(name, names[name])
    for phi in phis:
        phi.operands = tuple(
            names.get(value.text, value) if place == label else value
            for value, place in phi.incoming()
        )
    return [*build.made, loop.test, instructions[-1]]


def _renamed(instruction: Instruction, names: dict[str, Operand]) -> Parts:
    return Parts(operands=tuple(names.get(o.text, o) for o in instruction.operands))
