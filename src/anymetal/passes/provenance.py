"""Which memory a pointer points into, as far as the code tells: followed back to where it was
made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from anymetal.ir import Function, Instruction
from anymetal.machine.layout import THREADGROUP_ARGUMENTS, Group
from anymetal.machine.table import offset_of
from anymetal.passes.lower.machine import GROUP_OFFSET, THREAD_MAIN, parameters_of

Origin = Literal["buffer", "dynamic", "static", "array", "global", "machine", "unknown"]

_VALUE = r'(?:[%@](?:[-\w.$]+|"[^"]*"))'
_BASE = re.compile(rf"getelementptr .*?, ptr ({_VALUE})")
_LOADED_FROM = re.compile(rf"load ptr, ptr ({_VALUE})")
_INCOMING = re.compile(rf"\[ ({_VALUE}|[^,\]]+), ")
_SELECTED = re.compile(rf"ptr ({_VALUE})")
_OFFSET = re.compile(r", i64 (\d+)$")
_SLOT = re.compile(r"\(i32 [^)]*?(\d+),")

DYNAMIC_OFFSET = offset_of(Group, "dynamic_memory")


@dataclass(frozen=True)
class Root:
    """Where a pointer starts: a buffer's index, a threadgroup variable's slot, an array's name."""

    origin: Origin
    number: int = -1
    name: str = ""


UNKNOWN = Root("unknown")
MACHINE = Root("machine")
# A pointer that a loop moves on: it starts where the others that come to its phi do.
_ROUND = Root("unknown", name="the same as before")


class Provenance:
    """Answers for the pointers of one function."""

    def __init__(self, function: Function) -> None:
        self._definitions = {i.result: i for i in function.instructions() if i.result}
        # Only the kernel itself has the machine's two parameters.
        parameters = parameters_of(function) if function.name == THREAD_MAIN else ["", ""]
        self._buffers, self._self = parameters[:2]
        self._known: dict[str, Root] = {}

    def root(self, pointer: str) -> Root:
        """The root of a pointer operand, which may be a constant expression."""
        if pointer.startswith("getelementptr"):
            match = re.search(r"ptr (@[-\w.$]+)", pointer)
            return Root("global", name=match.group(1)) if match else UNKNOWN
        found = self._root(pointer, frozenset())
        return UNKNOWN if found == _ROUND else found

    def _root(self, value: str, above: frozenset[str]) -> Root:
        if value in above:
            return _ROUND
        if value not in self._known:
            found = self._find(value, above | {value})
            if above:
                return found
            self._known[value] = found
        return self._known[value]

    def _find(self, value: str, above: frozenset[str]) -> Root:
        if value.startswith("@"):
            return Root("global", name=value)
        if value in (self._buffers, self._self):
            return MACHINE
        instruction = self._definitions.get(value)
        if instruction is None:
            return UNKNOWN
        match instruction.opcode:
            case "getelementptr":
                base = _BASE.search(instruction.text)
                return self._root(base.group(1), above) if base else UNKNOWN
            case "alloca":
                return Root("array", name=value)
            case "load":
                return self._loaded(instruction, above)
            case "phi":
                return self._same(self._incoming(instruction), above)
            case "select":
                return self._same(_SELECTED.findall(instruction.text), above)
            case "call":
                return _of_call(instruction)
        return UNKNOWN

    def _incoming(self, instruction: Instruction) -> list[str]:
        return [value.strip() for value in _INCOMING.findall(instruction.text)]

    def _same(self, values: list[str], above: frozenset[str]) -> Root:
        """One root if all values share it; a value that leads back here does not count."""
        roots = {self._root(value, above) for value in values}
        if len(roots) > 1:
            roots.discard(_ROUND)
        return roots.pop() if len(roots) == 1 else UNKNOWN

    def _loaded(self, instruction: Instruction, above: frozenset[str]) -> Root:
        place = _LOADED_FROM.search(instruction.text)
        if place is None:
            return UNKNOWN
        pointer = place.group(1)
        if pointer == self._buffers:
            return Root("buffer", 0)
        base, offset = self._place(pointer)
        if base == self._buffers:
            return Root("buffer", offset // 8) if offset >= 0 else UNKNOWN
        if self._root(pointer, above) != MACHINE:
            return UNKNOWN
        slot = (offset - DYNAMIC_OFFSET) // 8
        if self._is_group(base) and 0 <= slot < THREADGROUP_ARGUMENTS:
            return Root("dynamic", slot)
        return MACHINE

    def _place(self, pointer: str) -> tuple[str, int]:
        """A pointer as base and constant byte offset; -1 where the offset is not constant."""
        instruction = self._definitions.get(pointer)
        if instruction is None or instruction.opcode != "getelementptr":
            return pointer, 0
        text = re.sub(r", !.*", "", instruction.text)
        base, offset = _BASE.search(text), _OFFSET.search(text)
        if base is None or offset is None or " i8, ptr " not in text:
            return (base.group(1) if base else pointer), -1
        return base.group(1), int(offset.group(1))

    def is_fixed_part(self, pointer: str) -> bool:
        """Whether a pointer is into the table of buffers or this thread's am_group."""
        base, _ = self._place(pointer)
        return base == self._buffers or self._is_group(base)

    def _is_group(self, value: str) -> bool:
        """Whether a value is this thread's am_group: loaded from its place in am_thread."""
        instruction = self._definitions.get(value)
        place = _LOADED_FROM.search(instruction.text) if instruction else None
        if place is None:
            return False
        base, offset = self._place(place.group(1))
        return offset == GROUP_OFFSET and self._root(base, frozenset()) == MACHINE


def _of_call(instruction: Instruction) -> Root:
    if instruction.callee == "am_threadgroup_storage":
        slot = _SLOT.search(instruction.text)
        return Root("static", int(slot.group(1))) if slot else UNKNOWN
    return MACHINE if instruction.callee == "am_self" else UNKNOWN
