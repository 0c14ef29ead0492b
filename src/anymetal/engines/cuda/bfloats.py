"""bfloat and float, each made of the other by the fewest instructions, and halves of floats.

One instruction rounds two floats at the speed of an addition, where one by itself takes four times
as long. A bfloat is the upper half of the float: of a word that holds two, a shift gives one and a
mask the other, once LLVM sees what puts them together.
"""

from __future__ import annotations

from anymetal.ir import (
    BFLOAT,
    FLOAT,
    HALF,
    I16,
    I32,
    Block,
    Builder,
    Function,
    Instruction,
    Module,
    Type,
    constant,
    i32,
    vector,
)
from anymetal.passes.rewrite import rewrite

_ROUND: dict[Type, str] = {BFLOAT: "llvm.nvvm.ff2bf16x2.rn", HALF: "llvm.nvvm.ff2f16x2.rn"}


def round_in_pairs(module: Module) -> None:
    """Rewrites neighbours that round; one without a neighbour stays."""
    found: set[Type] = set()
    for function in module.functions:
        for block in function.blocks:
            if sum(map(_rounds, block.instructions)) > 1:
                found |= _rewrite(function, block)
    for narrow, name in _ROUND.items():
        if narrow in found:
            module.declare(name, vector(2, narrow), [FLOAT, FLOAT])


def _rewrite(function: Function, block: Block) -> set[Type]:
    """Returns what two floats are made at once."""
    made: list[Instruction] = []
    waiting = iter(block.instructions)
    found: set[Type] = set()
    for first in waiting:
        second = next(waiting, None) if _rounds(first) else None
        if second is None:
            made.append(first)
        elif _rounds(second) and second.type is first.type:
            found.add(first.type)
            _emit(Builder(function.fresh, into=made), first, second)
        else:
            made += (first, second)
    block.instructions = made
    return found


def _rounds(instruction: Instruction) -> bool:
    return (
        instruction.opcode == "fptrunc"
        and instruction.type in _ROUND
        and instruction.operands[0].type is FLOAT
    )


def _emit(build: Builder, first: Instruction, second: Instruction) -> None:
    """Both as a word, of which the first one is the low half: what puts them together is undone."""
    narrow = first.type
    operands = [second.operands[0], first.operands[0]]
    pair = build.call(vector(2, narrow), _ROUND[narrow], operands)
    word = build.cast("bitcast", pair, I32)
    for part, rounded in ((word, first), (build.lshr(word, i32(16)), second)):
        half = build.cast("trunc", part, I16)
        build.cast("bitcast", half, narrow, name=str(rounded.result))


def widen_in_integers(module: Module) -> None:
    """Rewrites bfloats that become floats."""
    for function in module.functions:
        rewrite(function, _widen)


def _widen(build: Builder, instruction: Instruction) -> bool:
    if instruction.opcode != "fpext" or instruction.type.scalar is not FLOAT:
        return False
    (narrow,) = instruction.operands
    if narrow.type.scalar is not BFLOAT:
        return False
    bits = build.cast("bitcast", narrow, narrow.type.with_scalar(I16))
    words = instruction.type.with_scalar(I32)
    upper = build.shl(build.cast("zext", bits, words), constant(words, 16))
    build.cast("bitcast", upper, instruction.type, name=str(instruction.result))
    return True
