"""One call for all simdgroups of a threadgroup: each runs up to where it waits, in turn.

A call for each would save and load registers, and find out again what they share: a third of the
time of a matmul by tiles, whose simdgroups copy a row of a tile each and wait.
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
    after = [_moved(following, this, ctypes.sizeof(Thread)), _moved(following, frame, stride)]
    starts = (_FIRST, _FRAMES)
    for place, first, later in zip((this, frame), starts, after, strict=True):
        turn.phi(PTR, [(first, function.entry.label), (later, _NEXT)], name=place.text)
    turn.store(i32(1), TAKEN)
    turn.made += each[:-1]
    _switch(turn, each[-1])
    end = following.load(PTR, _END, is_volatile=True)
    following.branch(following.icmp("eq", after[0], end), _LEAVE, _TURN)
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
    signature.parameters[1:] = [Parameter(PTR, p.text, ("noalias",)) for p in starts]


def _begin(entry: Builder) -> None:
    for variable, kind in ((TAKEN, I32), (_WAITING, I32), (_END, PTR)):
        entry.alloca(kind, name=variable.text)
    group = entry.load(PTR, entry.offset(_FIRST, GROUP), align=8)
    count = entry.load(I32, entry.offset(group, _SIMDGROUPS), align=4)
    bytes_ = entry.mul(entry.cast("zext", count, I64), i64(ctypes.sizeof(Thread)))
    entry.store(entry.gep(I8, _FIRST, bytes_), _END, is_volatile=True)
    entry.store(i32(0), _WAITING, is_volatile=True)
    entry.jump(_TURN)


def _moved(build: Builder, place: Operand, distance: int) -> Operand:
    taken = build.cast("zext", build.load(I32, TAKEN), I64)
    return build.gep(I8, place, build.mul(taken, i64(distance)))


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
