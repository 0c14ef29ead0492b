"""A simdgroup that waits at barriers: it leaves there, and goes on from there in its next turn.

What is live at a barrier is written to the simdgroup's frame before it leaves, and read when it
goes on. LLVM's coroutines would do the same from four copies of the whole kernel, which took a
fifth of the time of compiling one.
"""

from __future__ import annotations

from anymetal.ir import (
    I32,
    PTR,
    Block,
    Builder,
    Function,
    Instruction,
    Layout,
    Operand,
    Parameter,
    Type,
    i32,
)
from anymetal.machine.layout import WAIT_BITS, Wait
from anymetal.passes.simdgroup.abreast import run_abreast
from anymetal.passes.simdgroup.lasting import Named, waits, what_lasts
from anymetal.passes.simdgroup.turns import take_turns

_FRAME = Operand(PTR, "%am.frame")
_START = "am.start"
_ALIGNMENT = 256  # bytes: frames begin at multiples of it
_LINE = 64  # bytes: vectors that are saved need no larger alignment


class _Frame:
    """Where everything is that outlasts a call. Vectors that are never kept at the same time share
    a place: often the one is the other in the next turn of a loop."""

    def __init__(self, types: Layout) -> None:
        self._types = types
        self._places: dict[str, int] = {}
        self._vectors: dict[tuple[int, Type], set[str]] = {}  # what shares a place
        self.at_once: list[set[str]] = []
        self.size = 1

    def place(self, build: Builder, name: str, kind: Type, align: int, new: str = "") -> Operand:
        if name not in self._places:
            self._places[name] = self._room(kind, align)
        return build.offset(_FRAME, self._places[name], name=new)

    def _room(self, kind: Type, align: int) -> int:
        offset = -(-self.size // align) * align
        self.size = offset + self._types.size(kind)
        return offset

    def move(self, build: Builder, named: list[Named], *, back: bool) -> None:
        """Copies variables to the frame, or back."""
        for name, kind in named:
            align = min(self._types.align(kind), _LINE)
            if kind.is_vector and name not in self._places:
                self._share(name, kind, align)
            variable, place = Operand(PTR, name), self.place(build, name, kind, align)
            if back:
                build.store(build.load(kind, place, align), variable)
            else:
                build.store(build.load(kind, variable), place, align)

    def _share(self, name: str, kind: Type, align: int) -> None:
        """Finds a place for a vector: another one's, or a new one."""
        beside = set[str]().union(*(names for names in self.at_once if name in names))
        for (offset, other), names in self._vectors.items():
            if other is kind and not names & beside:
                self._places[name] = offset
                names.add(name)
                return
        self._places[name] = self._room(kind, align)
        self._vectors[self._places[name], kind] = {name}


def stride_of(frame_size: int) -> int:
    """How many bytes there are from one simdgroup's frame to the next one's."""
    return -(-frame_size // _ALIGNMENT) * _ALIGNMENT


def make_resumable(function: Function, types: Layout, *, in_memory: bool = False) -> int:
    """Makes the function one of all simdgroups of a threadgroup, which has a further parameter, the
    frames (turns.py); returns how many bytes a frame has.

    `in_memory`: whatever outlasts a wait lies in the frame all the time, and is not moved; nothing
    is copied for several simdgroups.
    """
    allocas, machine, start = _entry_apart(function.entry)
    blocks = [Block(_START, start), *function.blocks[1:]]
    lasting = what_lasts(blocks, allocas, types, in_memory=in_memory)
    frame, entry = _Frame(types), Builder(function.fresh)
    frame.at_once = [
        {_variable(name) if name in lasting.values else name for name in names}
        for names in lasting.at_once
    ]
    for name, alloca in allocas.items():
        if name in lasting.in_memory:
            assert alloca.element is not None
            align = max(alloca.align, types.align(alloca.element))
            frame.place(entry, name, alloca.element, align, new=name)
        else:
            entry.made.append(alloca)
    for name, kind in lasting.values.items():
        variable = _variable(name)
        if name in lasting.in_memory:
            home = lasting.shared.get(name, variable)
            frame.place(entry, home, kind, types.align(kind), new=variable)
        else:
            entry.alloca(kind, name=variable)
    if lasting.values:
        _make_variables(blocks, lasting.values)
    _forget(blocks[0], lasting.unset)
    entry.made += machine
    this = function.parameters[1].operand()
    _finish(blocks, this)
    for number, ((label, after), named) in enumerate(lasting.saved_early.items()):
        before = Builder(function.fresh)
        frame.move(before, _variables(named, lasting.values), back=False)
        before.jump(after)
        place = next(n for n, block in enumerate(blocks) if block.label == label)
        blocks[place].terminator.redirect(after, f"am.keep.{number}")
        blocks.insert(place + 1, Block(f"am.keep.{number}", before.made))
    resumed: dict[int, str] = {}
    for block in [block for block in blocks if waits(block)]:
        number = len(resumed) + 1
        word, label = number << WAIT_BITS | Wait.THREADGROUP_BARRIER, f"am.resume.{number}"
        back = Builder(function.fresh)
        frame.move(back, _variables(lasting.restored[block.label], lasting.values), back=True)
        back.jump(block.successors[0])
        leaving = Builder(function.fresh, into=block.instructions[:-2])
        frame.move(leaving, _variables(lasting.saved[block.label], lasting.values), back=False)
        leaving.store(i32(word), this, align=4)
        leaving.ret()
        block.instructions = leaving.made
        blocks.append(Block(label, back.made))
        resumed[word] = label
    entry.switch(entry.load(I32, this, align=4), _START, resumed)
    function.blocks = [Block(function.entry.label, entry.made), *blocks]
    function.signature.parameters.append(Parameter(PTR, _FRAME.text, ("noalias",)))
    stride = stride_of(frame.size)
    if not in_memory:
        run_abreast(function, types, stride)
    take_turns(function, stride)
    return frame.size


def _entry_apart(
    entry: Block,
) -> tuple[dict[str, Instruction], list[Instruction], list[Instruction]]:
    """The variables; what is read of the machine, in every call; what is done in the first one."""
    allocas = {str(i.result): i for i in entry.instructions if i.opcode == "alloca"}
    rest, last = entry.instructions[:-1], entry.instructions[-1]
    machine = [i for i in rest if i.opcode not in ("alloca", "store")]
    return allocas, machine, [*(i for i in rest if i.opcode == "store"), last]


def _make_variables(blocks: list[Block], values: dict[str, Type]) -> None:
    """The results of instructions go into a variable each, and other blocks read that."""
    for block in blocks:
        at_hand = {i.result: i.result for i in block.instructions if i.result in values}
        build = Builder(str)
        for instruction in block.instructions:
            for name in instruction.names:
                if name in values and name not in at_hand:
                    at_hand[name] = f"{name}.in.{block.label}"
                    build.load(values[name], Operand(PTR, _variable(name)), name=at_hand[name])
                if at_hand.get(name, name) != name:
                    instruction.replace(name, str(at_hand[name]))
            build.made.append(instruction)
            if instruction.result in values:
                result = Operand(instruction.type, str(instruction.result))
                build.store(result, Operand(PTR, _variable(result.text)))
        block.instructions = build.made


def _forget(start: Block, unset: list[Named]) -> None:
    """Tells LLVM that variables are not the former simdgroup's, which had its turn before."""
    build = Builder(str)
    for name, kind in unset:
        build.store(Operand(kind, "undef"), Operand(PTR, name))
    start.instructions[:0] = build.made


def _variable(name: str) -> str:
    return f"{name}.kept"


def _variables(named: list[Named], values: dict[str, Type]) -> list[Named]:
    return [(_variable(name) if name in values else name, kind) for name, kind in named]


def _finish(blocks: list[Block], this: Operand) -> None:
    for block in blocks:
        if block.terminator.opcode == "ret":
            build = Builder(str, into=block.instructions[:-1])
            build.store(i32(Wait.FINISHED), this, align=4)
            build.made.append(block.terminator)
            block.instructions = build.made
