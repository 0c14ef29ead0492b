"""The loads, stores, atomics and block copies of a function: what each touches, read from its
text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anymetal.ir import Instruction
from anymetal.machine.shadow import Access as Kind

_POINTER = r'(?:[%@](?:[-\w.$]+|"[^"]*")|getelementptr [^()]*\([^()]*\))'
_TYPE = r"(<\d+ x \w+>|\[\d+ x [^\]]+\]|[\w.%]+)"
_LOAD = re.compile(rf"load (atomic )?(?:volatile )?{_TYPE}, ptr ({_POINTER})")
_STORE = re.compile(rf"^store (atomic )?(?:volatile )?{_TYPE} .*?, ptr ({_POINTER})(?=[, ]|$)")
_MODIFY = re.compile(rf"atomicrmw (?:volatile )?\w+ ptr ({_POINTER}), {_TYPE} ")
_EXCHANGE = re.compile(rf"cmpxchg (?:weak )?(?:volatile )?ptr ({_POINTER}), {_TYPE} ")
_COPY = re.compile(
    rf"@llvm\.mem(?:cpy|move)\.[\w.]+\(ptr [^%@]*?({_POINTER}), "
    rf"ptr [^%@]*?({_POINTER}), i64 (%?[\w.]+)"
)
_FILL = re.compile(rf"@llvm\.memset\.[\w.]+\(ptr [^%@]*?({_POINTER}), i8 \S+, i64 (%?[\w.]+)")
_ALIGN = re.compile(r", align (\d+)")

_SCALARS = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}


@dataclass(frozen=True)
class Access:
    """One touch of memory: its pointer operand, bytes (a number or a value), kind and alignment."""

    pointer: str
    size: str
    kind: int
    element: int
    align: int


def size_of(kind: str) -> int:
    """Bytes of a type as it lies in memory."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind.startswith("i"):
        return max(1, -(-int(kind[1:]) // 8))
    if kind[0] in "<[":
        count, element = kind[1:-1].split(" x ", 1)
        return int(count) * size_of(element)
    raise ValueError(f"no size is known for the type {kind!r}")


def _element(kind: str) -> int:
    return size_of(kind[1:-1].split(" x ", 1)[1]) if kind[0] in "<[" else size_of(kind)


def accesses_of(instruction: Instruction) -> Iterator[Access]:
    """What an instruction touches; a copy touches two places."""
    text = instruction.text
    opcode = instruction.opcode
    if opcode in ("load", "store", "atomicrmw", "cmpxchg"):
        yield _simple(opcode, text)
    elif (instruction.callee or "").startswith(("llvm.memcpy", "llvm.memmove")):
        copy = _COPY.search(text)
        assert copy is not None, text
        yield Access(copy.group(2), copy.group(3), Kind.READ, 1, 1)
        yield Access(copy.group(1), copy.group(3), Kind.WRITE, 1, 1)
    elif (instruction.callee or "").startswith("llvm.memset"):
        fill = _FILL.search(text)
        assert fill is not None, text
        yield Access(fill.group(1), fill.group(2), Kind.WRITE, 1, 1)


def _simple(opcode: str, text: str) -> Access:
    if opcode in ("load", "store"):
        match = (_LOAD if opcode == "load" else _STORE).search(text)
        assert match is not None, text
        atomic, kind, pointer = match.groups()
        access = (Kind.WRITE if opcode == "store" else Kind.READ) | (Kind.ATOMIC if atomic else 0)
    else:
        match = (_MODIFY if opcode == "atomicrmw" else _EXCHANGE).search(text)
        assert match is not None, text
        pointer, kind = match.groups()
        access = Kind.WRITE | Kind.ATOMIC | Kind.MODIFY
    align = _ALIGN.search(text)
    element = _element(kind)
    return Access(
        pointer, str(size_of(kind)), access, element, int(align.group(1)) if align else element
    )
