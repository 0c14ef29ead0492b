"""The loads, stores, atomics and block copies of a function: what memory each touches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anymetal.ir import Array, Instruction, Layout, Operand, Type, Vector, i64
from anymetal.machine.shadow import Access as Kind

_LAYOUT = Layout()


@dataclass(frozen=True)
class Access:
    """One touch of memory: which operand is the pointer, bytes, kind and alignment."""

    place: int
    pointer: Operand
    size: Operand
    kind: int
    element: int
    align: int


def accesses_of(instruction: Instruction) -> list[Access]:
    """What an instruction touches; a copy touches two places."""
    if instruction.opcode in ("load", "store", "atomicrmw", "cmpxchg"):
        return [_simple(instruction)]
    return list(_of_call(instruction)) if instruction.opcode == "call" else []


def _of_call(call: Instruction) -> Iterator[Access]:
    callee = call.callee or ""
    if callee.startswith(("llvm.memcpy", "llvm.memmove")):
        yield _block(call, 1, Kind.READ)
        yield _block(call, 0, Kind.WRITE)
    elif callee.startswith("llvm.memset"):
        yield _block(call, 0, Kind.WRITE)


def _block(call: Instruction, place: int, kind: int) -> Access:
    """One side of a copy. What its elements are is not known: halves, if anything is aligned."""
    size, align = call.operands[2], alignment(call, place)
    is_even = size.integer is not None and size.integer % 2 == 0
    return Access(place, call.operands[place], size, kind, min(align, 1 + is_even), align)


def alignment(call: Instruction, place: int) -> int:
    """What a call says of the alignment of a pointer it passes; 1 where it does not say."""
    attributes = call.attributes[place] if place < len(call.attributes) else ()
    aligned = (a.split()[1] for a in attributes if a.startswith("align "))
    return int(next(aligned, "1"))


def _simple(instruction: Instruction) -> Access:
    opcode = instruction.opcode
    if opcode == "load":
        place, kind, access = 0, instruction.type, int(Kind.READ)
    elif opcode == "store":
        place, kind, access = 1, instruction.value.type, int(Kind.WRITE)
    else:
        place, kind, access = 0, instruction.operands[1].type, Kind.WRITE | Kind.MODIFY
    if instruction.is_atomic:
        access |= Kind.ATOMIC
    element = _LAYOUT.access_size(_element(kind))
    size = i64(_LAYOUT.access_size(kind))
    pointer = instruction.operands[place]
    return Access(place, pointer, size, access, element, instruction.align or element)


def _element(kind: Type) -> Type:
    return kind.element if isinstance(kind, Vector | Array) else kind
