"""Simdgroups of a threadgroup that run a loop between two barriers side by side.

In a product of matrices by tiles each simdgroup has a row, and all of them load the same rows of
the other tile. One after the other they wait for those loads, and for a single chain of products;
some at once load them once for all.

The code from one barrier to the next is copied, with what differs between simdgroups as often as
there are of them. A simdgroup that finds the next ones at the same barrier runs it for all, which
is their turn too.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from anymetal.ir import (
    I32,
    PTR,
    Block,
    Builder,
    Function,
    Instruction,
    Layout,
    Operand,
    Parts,
    Vector,
    boolean,
    i32,
)
from anymetal.machine import processor
from anymetal.machine.layout import Group, Thread, Wait
from anymetal.machine.table import offset_of
from anymetal.passes.simdgroup.alike import Alike, is_pure
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.positions import GROUP_POINTER
from anymetal.passes.simdgroup.rules import INDEX, POSITION
from anymetal.passes.simdgroup.turns import TAKEN

_SIMDGROUPS = offset_of(Group, "simdgroups")
_THREAD = ctypes.sizeof(Thread)
_LONGEST = 300  # instructions that are copied
# Bytes of vectors that each simdgroup carries from turn to turn, by how many go side by side: two
# thirds of the registers hold them.
_ROOM = {4: 256, 2: 512}


@dataclass(frozen=True)
class _Segment:
    """The code between two barriers. `together`: how many simdgroups run it side by side."""

    waiting: int  # the word of the barrier it begins at
    blocks: list[Block]
    alike: set[str]
    together: int


def run_abreast(function: Function, types: Layout, stride: int) -> None:
    """Adds copies for several simdgroups to a resumable function; their frames are `stride` bytes
    apart."""
    if not processor.has("avx512f"):
        return
    switch = function.entry.terminator
    words = [constant.integer for constant in switch.operands[1:]]
    alike = Alike(function)
    found = []
    for word, label in zip(words, switch.labels[1:], strict=True):
        assert word is not None
        segment = _segment(function, alike, word, label, types)
        if segment is not None:
            found.append(segment)
    for segment in found:
        _Copier(function, alike, segment, stride).add()


def _segment(
    function: Function, alike: Alike, word: int, start: str, types: Layout
) -> _Segment | None:
    blocks = _reached_from(function, start)
    instructions = [i for block in blocks for i in block.instructions]
    if len(instructions) > _LONGEST or not all(_is_quiet(i, alike, function) for i in instructions):
        return None
    looping = [block for block in blocks if _is_in_loop(block, blocks)]
    if not looping:
        return None
    ends = [block for block in blocks if block.terminator.opcode == "ret"]
    reached = ends[0].instructions[-2].value.integer if len(ends) == 1 else Wait.FINISHED
    if reached is None or reached == Wait.FINISHED:
        return None
    same = alike.within(blocks)
    branches = [b.terminator for b in blocks if b.terminator.opcode == "br"]
    if not all(name in same for branch in branches for name in branch.names):
        return None
    if not any(_is_shared(i, same, alike) for block in looping for i in block.instructions):
        return None
    together = _how_many(looping, same, alike, types)
    return _Segment(word, blocks, same, together) if together else None


def _reached_from(function: Function, start: str) -> list[Block]:
    by_label = {block.label: block for block in function.blocks}
    found: dict[str, Block] = {}
    pending = [start]
    while pending:
        label = pending.pop()
        if label not in found:
            found[label] = by_label[label]
            pending += reversed(by_label[label].successors)
    return list(found.values())


def _is_in_loop(block: Block, blocks: list[Block]) -> bool:
    by_label = {other.label: other for other in blocks}
    seen: set[str] = set()
    pending = list(block.successors)
    while pending:
        label = pending.pop()
        if label == block.label:
            return True
        if label not in seen:
            seen.add(label)
            pending += by_label[label].successors
    return False


def _is_quiet(instruction: Instruction, alike: Alike, function: Function) -> bool:
    """Whether nobody but the simdgroup itself notices what an instruction does."""
    if instruction.opcode == "load":
        return not instruction.is_atomic and not instruction.is_volatile
    if instruction.opcode == "store":
        is_own = alike.is_own(instruction.pointer) and not instruction.is_volatile
        return is_own or instruction.pointer == function.parameters[1].operand()
    return instruction.opcode in ("br", "ret") or is_pure(instruction)


def _is_shared(load: Instruction, same: set[str], alike: Alike) -> bool:
    """Whether a vector is loaded from memory that is the same for all."""
    is_vector = load.opcode == "load" and isinstance(load.type, Vector)
    return is_vector and load.result in same and alike.place(load.pointer) is None


def _how_many(looping: list[Block], same: set[str], alike: Alike, types: Layout) -> int:
    """As many as the registers have room for; 0 where that is one, or nothing is carried."""
    stores = [i for block in looping for i in block.instructions if i.opcode == "store"]
    carried = {i.pointer.text: i.value.type for i in stores if i.pointer.text in alike.variables}
    size = sum(
        types.size(kind)
        for name, kind in carried.items()
        if name not in same and isinstance(kind, Vector)
    )
    return next((count for count, room in _ROOM.items() if 0 < size <= room), 0)


class _Copier:
    """Writes one segment for several simdgroups, and asks where it begins whether they are there.

    The first of them keeps the names of its variables; what is the same for all is written once.
    """

    def __init__(self, function: Function, alike: Alike, segment: _Segment, stride: int) -> None:
        self._function = function
        self._alike = alike
        self._segment = segment
        self._stride = stride
        self._stem = f"am.abreast.{segment.waiting}"
        self._made = {i.result for block in segment.blocks for i in block.instructions}
        self._self, self._frame = (p.operand() for p in function.parameters[1:3])
        self._entry = {
            str(i.result): i for i in function.entry.instructions if i.opcode != "alloca"
        }
        self._names: list[dict[str, str]] = [{} for _ in range(segment.together)]
        self._start = Builder(function.fresh)
        self._start.store(i32(segment.together), TAKEN)
        self._variables: list[Instruction] = []

    def add(self) -> None:
        segment, switch = self._segment, self._function.entry.terminator
        first = segment.blocks[0].label
        self._place_others()
        blocks = [Block(self._label(block.label), self._copied(block)) for block in segment.blocks]
        self._start.jump(self._label(first))
        switch.redirect(first, self._label("ask"))
        self._function.entry.instructions[:0] = self._variables
        self._function.blocks += [
            Block(self._label("ask"), self._asking(first)),
            Block(self._label("start"), self._start.made),
            *blocks,
        ]

    def _label(self, label: str) -> str:
        return f"{self._stem}.{label}"

    def _place_others(self) -> None:
        """The descriptions and frames of the other simdgroups."""
        for number, names in enumerate(self._names):
            names[self._self.text] = self._self.text
            names[self._frame.text] = self._frame.text
            if number:
                names[self._self.text] = self._described(self._start, number).text
                frame = self._start.offset(self._frame, number * self._stride)
                names[self._frame.text] = frame.text

    def _described(self, build: Builder, number: int) -> Operand:
        return build.offset(self._self, number * _THREAD)

    def _asking(self, first: str) -> list[Instruction]:
        """Whether the next simdgroups exist, wait here too, and begin at the same place in x."""
        build = Builder(self._function.fresh)
        count = self._segment.together
        index = build.load(I32, build.offset(self._self, INDEX), 4)
        after = build.add(build.lshr(index, i32(WIDTH.bit_length() - 1)), i32(count))
        existing = build.load(I32, build.offset(GROUP_POINTER, _SIMDGROUPS), 4)
        column = build.load(I32, build.offset(self._self, POSITION), 4)
        answer = build.icmp("ule", after, existing)
        for number in range(1, count):
            other = self._described(build, number)
            site = build.load(I32, other, 4)
            is_here = build.icmp("eq", site, i32(self._segment.waiting))
            its_column = build.load(I32, build.offset(other, POSITION), 4)
            is_below = build.icmp("eq", its_column, column)
            for condition in (is_here, is_below):
                answer = build.select(answer, condition, boolean(False))
        build.branch(answer, self._label("start"), first)
        return build.made

    # ---- copies ------------------------------------------------------------------------------

    def _copied(self, block: Block) -> list[Instruction]:
        made: list[Instruction] = []
        for instruction in block.instructions:
            if instruction.opcode in ("br", "ret"):
                labels = tuple(map(self._label, instruction.labels))
                made.append(self._renamed(instruction, 0, labels))
                continue
            if self._is_same(instruction):
                made.append(self._renamed(instruction, 0))
                continue
            for number in range(self._segment.together):
                made.append(self._renamed(instruction, number))
        return made

    def _is_same(self, instruction: Instruction) -> bool:
        if instruction.opcode == "store":
            return instruction.pointer.text in self._segment.alike
        return instruction.result in self._segment.alike

    def _renamed(
        self, instruction: Instruction, number: int, labels: tuple[str, ...] = ()
    ) -> Instruction:
        result = instruction.result
        if result is not None:
            result = self._name(result, number)
        parts = Parts(operands=self._operands(instruction, number), labels=labels)
        return instruction.changed(parts, result)

    def _operands(self, instruction: Instruction, number: int) -> tuple[Operand, ...]:
        return tuple(
            Operand(operand.type, self._name(operand.text, number)) if operand.is_name else operand
            for operand in instruction.operands
        )

    def _name(self, name: str, number: int) -> str:
        """What a value or variable is called for one of the simdgroups."""
        if name in self._segment.alike:
            number = 0
        names = self._names[number]
        if name not in names:
            names[name] = self._new_name(name, number)
        return names[name]

    def _new_name(self, name: str, number: int) -> str:
        if name in self._made:
            return f"{name}.{self._segment.waiting}.{number}"
        if not number:
            return name
        variable = self._alike.variables.get(name)
        if variable is not None:
            new = f"{name}.{self._segment.waiting}.{number}"
            self._variables.append(variable.changed(Parts(), new))
            return new
        made = self._entry.get(name)
        if made is None or self._alike.always(Operand(PTR, name)):
            return name
        copy = self._function.fresh("am")
        parts = Parts(operands=self._operands(made, number))
        self._start.made.append(made.changed(parts, copy))
        return copy
