"""A vector that is copied from one place in memory to another is one load and one store: clang
writes a call of memcpy, of which LLVM makes accesses of 8 bytes that cannot be told to be
read-only."""

from __future__ import annotations

from anymetal.ir import I32, I64, Builder, Function, Instruction, Operand, Type, vector
from anymetal.passes.rewrite import rewrite

_COPY = "llvm.memcpy.p0.p0.i64"
_TYPES: dict[int, Type] = {4: I32, 8: I64, 16: vector(4, I32)}
_POINTS_ON = ("addrspacecast", "freeze", "getelementptr")


def copy_whole_vectors(function: Function) -> None:
    """Copies whose places are multiples of their size. Variables of a thread are left alone: they
    become registers."""
    definitions = function.definitions()

    def emit(build: Builder, instruction: Instruction) -> bool:
        if instruction.callee != _COPY:
            return False
        to, source, size, _ = instruction.operands
        kind = _TYPES.get(size.integer or 0)
        if kind is None or any(_align(instruction, at) < (size.integer or 0) for at in (0, 1)):
            return False
        if any(_is_own(pointer, definitions) for pointer in (to, source)):
            return False
        align = size.integer or 0
        build.store(build.load(kind, source, align=align), to, align=align)
        return True

    rewrite(function, emit)


def _align(call: Instruction, argument: int) -> int:
    words = (word.split() for word in call.attributes[argument])
    return next((int(word[1]) for word in words if word[0] == "align"), 1)


def _is_own(pointer: Operand, definitions: dict[str, Instruction]) -> bool:
    """Whether a pointer is one of the thread's own variables, or may be."""
    while (made := definitions.get(pointer.text)) is not None and made.opcode in _POINTS_ON:
        pointer = made.operands[0]
    return made is not None and made.opcode in ("alloca", "phi", "select")
