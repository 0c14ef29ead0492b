"""One call for all simdgroups of a threadgroup: each runs up to where it waits, in turn.

A call for each would save and load registers: a tenth of the time of a matmul by tiles, whose
simdgroups copy a row of a tile each and wait.

The turns are no loop to LLVM, since one may enter them in two places. Out of a loop it would move
constants in front of all turns, where registers have no room for them, and load them again in the
kernel's own loops: a softmax took a tenth longer.
"""

from __future__ import annotations

import ctypes

from anymetal.ir import (
    I8,
    I32,
    I64,
    PTR,
    Block,
    Builder,
    Function,
    Instruction,
    Operand,
    Parameter,
    i32,
    i64,
)
from anymetal.machine.layout import Group, Thread, Wait
from anymetal.machine.table import offset_of
from anymetal.passes.simdgroup.rules import GROUP

# How many simdgroups a turn is for (a variable): one, but where some run side by side.
TAKEN = Operand(PTR, "%am.taken")
# Whether any waits, and where the descriptions end: volatile, since LLVM would keep both in
# registers through all code of the kernel, and take a tenth longer to find others.
_WAITING = Operand(PTR, "%am.waiting")
_END = Operand(PTR, "%am.end")
_HERE, _FRAME_HERE = Operand(PTR, "%am.here"), Operand(PTR, "%am.frame.here")
_FIRST, _FRAMES = Operand(PTR, "%am.first"), Operand(PTR, "%am.frames")
_TURN, _NEXT, _LEAVE = "am.turn", "am.next", "am.leave"
_SIMDGROUPS = offset_of(Group, "simdgroups")


def take_turns(function: Function, stride: int) -> None:
    """Makes a function of one simdgroup, `(buffers, self, frame)`, one of all of them: it takes the
    first one's description and frame, and returns whether any of them waits.

    Their frames are `stride` bytes apart. What has finished is passed over.
    """
    this, frame = (parameter.operand() for parameter in function.parameters[1:])
    variables = [i for i in function.entry.instructions if i.opcode == "alloca"]
    each = [i for i in function.entry.instructions if i.opcode != "alloca"]
    for block in function.blocks[1:]:
        if block.terminator.opcode == "ret":
            _end_turn(block, this)
    entry = Builder(function.fresh, into=variables)
    _begin(entry)
    turn, following, leave = (Builder(function.fresh) for _ in range(3))
    turn.load(PTR, _HERE, name=this.text)
    turn.load(PTR, _FRAME_HERE, name=frame.text)
    turn.store(i32(1), TAKEN)
    turn.made += each[:-1]
    _switch(turn, each[-1])
    after = _moved(following, _HERE, ctypes.sizeof(Thread))
    _moved(following, _FRAME_HERE, stride)
    _unless_at_end(following, after)
    leave.ret(leave.load(I32, _WAITING, is_volatile=True))
    function.blocks = [
        Block(function.entry.label, entry.made),
        Block(_TURN, turn.made),
        *function.blocks[1:],
        Block(_NEXT, following.made),
        Block(_LEAVE, leave.made),
    ]
    signature = function.signature
    signature.type = I32
    signature.parameters[1:] = [Parameter(PTR, p.text, ("noalias",)) for p in (_FIRST, _FRAMES)]


def _begin(entry: Builder) -> None:
    for variable in (TAKEN, _WAITING):
        entry.alloca(I32, name=variable.text)
    for variable in (_END, _HERE, _FRAME_HERE):
        entry.alloca(PTR, name=variable.text)
    group = entry.load(PTR, entry.offset(_FIRST, GROUP), align=8)
    count = entry.load(I32, entry.offset(group, _SIMDGROUPS), align=4)
    bytes_ = entry.mul(entry.cast("zext", count, I64), i64(ctypes.sizeof(Thread)))
    entry.store(entry.gep(I8, _FIRST, bytes_), _END, is_volatile=True)
    entry.store(i32(0), _WAITING, is_volatile=True)
    entry.store(_FIRST, _HERE)
    entry.store(_FRAMES, _FRAME_HERE)
    entry.store(i32(0), TAKEN)
    _unless_at_end(entry, _FIRST, at_end=_NEXT)


def _unless_at_end(build: Builder, here: Operand, at_end: str = _LEAVE) -> None:
    """Goes on with a turn, or to where the end is found again: the second way into the turns."""
    end = build.load(PTR, _END, is_volatile=True)
    build.branch(build.icmp("eq", here, end), at_end, _TURN)


def _moved(build: Builder, variable: Operand, distance: int) -> Operand:
    """Moves the address in a variable to the next simdgroup's."""
    taken = build.cast("zext", build.load(I32, TAKEN), I64)
    moved = build.gep(I8, build.load(PTR, variable), build.mul(taken, i64(distance)))
    build.store(moved, variable)
    return moved


def _switch(turn: Builder, switch: Instruction) -> None:
    """To where it waits; what has finished is passed over, all else starts."""
    words = [operand.integer for operand in switch.operands[1:]]
    cases = {word: label for word, label in zip(words, switch.labels[1:], strict=True) if word}
    turn.switch(switch.operands[0], switch.labels[0], {Wait.FINISHED: _NEXT, **cases})


def _end_turn(block: Block, this: Operand) -> None:
    """Goes on with the next simdgroup where this one returned."""
    build = Builder(str, into=block.instructions[:-1])
    reached = next(i for i in reversed(build.made) if i.opcode == "store" and i.pointer == this)
    if reached.value.integer != Wait.FINISHED:
        build.store(i32(1), _WAITING, is_volatile=True)
    build.jump(_NEXT)
    block.instructions = build.made
