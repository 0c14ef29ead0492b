"""Loads, stores and small copies of several scalars become those of one scalar each.

Which of them are written as one wide access, together.py finds out from their addresses. LLVM
writes a float4 now as one vector, now as two or as a call of memcpy, which would run for one lane
after the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from anymetal.ir import (
    I8,
    I16,
    I32,
    Builder,
    Function,
    Instruction,
    Layout,
    Operand,
    Type,
    Vector,
    i64,
    poison,
)
from anymetal.passes.rewrite import rewrite

_COPIES = ("llvm.memcpy.", "llvm.memmove.")
_LARGEST = 64
# Longer vectors are those of collectives: the table of all lanes' values, which is read whole.
_LONGEST = 8
_WORDS: tuple[tuple[Type, int], ...] = ((I32, 4), (I16, 2), (I8, 1))


def split_accesses(function: Function, types: Layout) -> None:
    """Splits them; copies of up to 64 bytes, and not those of a thread's own arrays, which have a
    layout of their own."""
    definitions = {i.result: i for i in function.instructions() if i.result is not None}
    has_arrays = any(i.opcode == "alloca" for i in definitions.values())

    def is_shared(pointer: Operand) -> bool:
        source = definitions.get(pointer.text)
        while source is not None and source.opcode == "getelementptr":
            source = definitions.get(source.pointer.text)
        if source is not None and source.opcode in ("phi", "select"):
            return not has_arrays
        return source is None or source.opcode != "alloca"

    def emit(build: Builder, instruction: Instruction) -> bool:
        if instruction.opcode in ("load", "store"):
            return _split(build, instruction, types)
        if not (instruction.callee or "").startswith(_COPIES):
            return False
        target, source, length, is_volatile = instruction.operands
        size = length.integer
        if size is None or not 0 < size <= _LARGEST or is_volatile.text != "false":
            return False
        if not (is_shared(target) and is_shared(source)):
            return False
        _copy(build, instruction, size)
        return True

    rewrite(function, emit)


def _split(build: Builder, access: Instruction, types: Layout) -> bool:
    kind = access.type if access.opcode == "load" else access.operands[0].type
    if not isinstance(kind, Vector) or access.is_volatile or access.is_atomic:
        return False
    size = types.size(kind.scalar)
    if size < 2 or size * kind.count != types.size(kind) or kind.count > _LONGEST:
        return False
    if access.opcode == "load":
        _split_load(build, access, kind, size)
    else:
        _split_store(build, access, kind, size)
    return True


def _split_load(build: Builder, load: Instruction, kind: Vector, size: int) -> None:
    kept = {name: node for name, node in load.metadata.items() if name in ("dbg", "invariant.load")}
    whole: Operand = poison(kind)
    for number in range(kind.count):
        place, align = _place(build, load, number * size)
        part = build.load(kind.scalar, place, align, metadata=kept)
        name = (load.result or "") if number == kind.count - 1 else ""
        whole = build.insert_element(whole, part, i64(number), name=name)


def _split_store(build: Builder, store: Instruction, kind: Vector, size: int) -> None:
    for number in range(kind.count):
        place, align = _place(build, store, number * size)
        build.store(build.extract_element(store.operands[0], i64(number)), place, align)


def _place(build: Builder, access: Instruction, offset: int) -> tuple[Operand, int]:
    pointer = build.offset(access.pointer, offset) if offset else access.pointer
    return pointer, _aligned(access.align, offset)


def _copy(build: Builder, call: Instruction, size: int) -> None:
    """All is read before anything is written: the two may be one place."""
    target, source = call.operands[:2]
    aligns = [_alignment(words) for words in call.attributes[:2]]
    read = [
        (build.load(kind, build.offset(source, at), _aligned(aligns[1], at)), at)
        for kind, at in _words(size)
    ]
    for value, at in read:
        build.store(value, build.offset(target, at), _aligned(aligns[0], at))


def _words(size: int) -> Iterator[tuple[Type, int]]:
    at = 0
    while at < size:
        kind, length = next(word for word in _WORDS if word[1] <= size - at)
        yield kind, at
        at += length


def _alignment(words: tuple[str, ...]) -> int:
    return next((int(word.split()[1]) for word in words if word.startswith("align ")), 1)


def _aligned(align: int, offset: int) -> int:
    """The alignment of a place so many bytes behind an aligned one."""
    return align if offset == 0 else min(align, offset & -offset)
