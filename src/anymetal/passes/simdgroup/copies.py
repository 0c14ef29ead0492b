"""Small copies between addresses become loads and stores, which lanes make side by side.

LLVM writes `float4 x = y` in memory as a call of memcpy, and a call runs for one lane after the
other.
"""

from __future__ import annotations

from collections.abc import Iterator

from anymetal.ir import I8, I16, I32, Builder, Function, Instruction, Operand, Type, vector
from anymetal.passes.rewrite import rewrite

_COPIES = ("llvm.memcpy.", "llvm.memmove.")
_LARGEST = 64
# The types of pieces and their bytes.
_PIECES: tuple[tuple[Type, int], ...] = (
    (vector(4, I32), 16),
    (vector(3, I32), 12),
    (vector(2, I32), 8),
    (I32, 4),
    (I16, 2),
    (I8, 1),
)


def spell_out_copies(function: Function) -> None:
    """Copies of up to 64 bytes outside of the thread's own arrays, which have a layout of their
    own."""
    definitions = {i.result: i for i in function.instructions() if i.result is not None}
    has_arrays = any(i.opcode == "alloca" for i in definitions.values())

    def is_shared(pointer: Operand) -> bool:
        source = definitions.get(pointer.text)
        while source is not None and source.opcode == "getelementptr":
            source = definitions.get(source.pointer.text)
        if source is not None and source.opcode in ("phi", "select"):
            return not has_arrays
        return source is None or source.opcode != "alloca"

    def emit(build: Builder, call: Instruction) -> bool:
        if call.opcode != "call" or not (call.callee or "").startswith(_COPIES):
            return False
        target, source, length, is_volatile = call.operands
        size = length.integer
        if size is None or not 0 < size <= _LARGEST or is_volatile.text != "false":
            return False
        if not (is_shared(target) and is_shared(source)):
            return False
        aligns = [_alignment(words) for words in call.attributes[:2]]
        _copy(build, target, source, size, aligns)
        return True

    rewrite(function, emit)


def _copy(build: Builder, target: Operand, source: Operand, size: int, aligns: list[int]) -> None:
    """All is read before anything is written: the two may be one place."""
    read = [
        (build.load(kind, build.offset(source, at), align=_at(aligns[1], at)), at)
        for kind, at in _pieces(size)
    ]
    for value, at in read:
        build.store(value, build.offset(target, at), align=_at(aligns[0], at))


def _pieces(size: int) -> Iterator[tuple[Type, int]]:
    at = 0
    while at < size:
        kind, length = next(piece for piece in _PIECES if piece[1] <= size - at)
        yield kind, at
        at += length


def _alignment(words: tuple[str, ...]) -> int:
    return next((int(word.split()[1]) for word in words if word.startswith("align ")), 1)


def _at(align: int, offset: int) -> int:
    """The alignment of a place so many bytes behind an aligned one."""
    return align if offset == 0 else min(align, offset & -offset)
