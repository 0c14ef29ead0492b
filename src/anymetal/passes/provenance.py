"""Which memory a pointer points into, as far as the code tells: followed back to where it was
made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anymetal.ir import PTR, Function, Instruction, Layout, Operand
from anymetal.ir.tokens import Reader
from anymetal.machine.layout import THREADGROUP_ARGUMENTS, Group
from anymetal.machine.table import offset_of
from anymetal.passes.lower.machine import (
    GROUP_OFFSET,
    THREAD_MAIN,
    THREADGROUP_MEMORY_OFFSET,
)

Origin = Literal["buffer", "dynamic", "static", "array", "global", "machine", "unknown"]

DYNAMIC_OFFSET = offset_of(Group, "dynamic_memory")
POINTER_BYTES = 8
_LAYOUT = Layout()


@dataclass(frozen=True)
class Root:
    """Where a pointer starts: a buffer's index, a threadgroup variable's slot, an array's name."""

    origin: Origin
    number: int = -1
    name: str = ""


UNKNOWN = Root("unknown")
MACHINE = Root("machine")


def constant_step(gep: Instruction) -> int | None:
    """The bytes a getelementptr with one index moves by; None where that is no constant."""
    if len(gep.operands) != 2 or gep.element is None or gep.element.is_compound:
        return None
    index = gep.operands[1].integer
    return None if index is None else index * _LAYOUT.size(gep.element)


def used_buffers(function: Function) -> set[int]:
    """Indices of the buffers the kernel looks at, from its reads of the table of addresses."""
    table = function.parameters[0].name
    used: set[int] = set()
    for instruction in function.instructions():
        if instruction.opcode == "load" and instruction.pointer.text == table:
            used.add(0)
        elif instruction.opcode == "getelementptr" and instruction.pointer.text == table:
            step = constant_step(instruction)
            if step is not None:
                used.add(step // POINTER_BYTES)
    return used


class Provenance:
    """Answers for the pointers of one function."""

    def __init__(self, function: Function) -> None:
        self._definitions = function.definitions()
        # Only the kernel itself has the machine's two parameters.
        is_kernel = function.name == THREAD_MAIN
        names = [parameter.name for parameter in function.parameters] if is_kernel else ["", ""]
        self._buffers, self._self = names[:2]
        self._known: dict[str, Root] = {}

    def root(self, pointer: Operand) -> Root:
        """The root of a pointer, which may be a constant expression."""
        return self._root(pointer.text)

    def _root(self, value: str) -> Root:
        """The one root of all values that may become this one; unknown where there are several.

        Ways through steps, phis and selects meet and go round, so each value is looked at once.
        """
        roots: set[Root] = set()
        seen, waiting = {value}, [value]
        while waiting:
            one = waiting.pop()
            if one in self._known:
                roots.add(self._known[one])
                continue
            before = self._before(one)
            if before is None:
                roots.add(self._start(one))
                continue
            names = {operand.text for operand in before} - seen
            seen |= names
            waiting += names
        found = roots.pop() if len(roots) == 1 else UNKNOWN
        # What leads to one root alone leads there from everywhere on the way.
        for one in seen if found != UNKNOWN else (value,):
            self._known[one] = found
        return found

    def _before(self, value: str) -> list[Operand] | None:
        """The values that this one is one of, or a step from; None where it starts somewhere."""
        instruction = self._definitions.get(value)
        if instruction is None:
            return None
        match instruction.opcode:
            case "getelementptr":
                return [instruction.pointer]
            case "phi":
                return list(instruction.operands)
            case "select":
                return list(instruction.operands[1:])
        return None

    def _start(self, value: str) -> Root:
        if not value.startswith("%"):
            name = next((token for token in Reader(value).tokens if token[:1] == "@"), None)
            return Root("global", name=name) if name else UNKNOWN
        if value in (self._buffers, self._self):
            return MACHINE
        instruction = self._definitions.get(value)
        if instruction is None:
            return UNKNOWN
        match instruction.opcode:
            case "alloca":
                return Root("array", name=value)
            case "load" if instruction.type is PTR:
                return self._loaded(instruction.pointer.text)
            case "call":
                return _of_call(instruction)
        return UNKNOWN

    def _loaded(self, pointer: str) -> Root:
        """What a pointer that was read from memory points into."""
        base, offset = self._place(pointer)
        if base == self._buffers:
            return UNKNOWN if offset is None else Root("buffer", offset // POINTER_BYTES)
        if self._root(pointer) != MACHINE:
            return UNKNOWN
        slot = ((offset or 0) - DYNAMIC_OFFSET) // POINTER_BYTES
        if self._is_group(base) and 0 <= slot < THREADGROUP_ARGUMENTS:
            return Root("dynamic", slot)
        if self._is_group(base) and offset == THREADGROUP_MEMORY_OFFSET:
            return Root("static")  # of all variables together, once they have their places
        return MACHINE

    def _place(self, pointer: str) -> tuple[str, int | None]:
        """A pointer as base and constant byte offset; None where the offset is not constant."""
        instruction = self._definitions.get(pointer)
        if instruction is None or instruction.opcode != "getelementptr":
            return pointer, 0
        return instruction.pointer.text, constant_step(instruction)

    def is_fixed_part(self, pointer: Operand) -> bool:
        """Whether a pointer is into the table of buffers or this thread's am_group."""
        base, _ = self._place(pointer.text)
        return base == self._buffers or self._is_group(base)

    def _is_group(self, value: str) -> bool:
        """Whether a value is this thread's am_group: loaded from its place in am_thread."""
        instruction = self._definitions.get(value)
        if instruction is None or instruction.opcode != "load" or instruction.type is not PTR:
            return False
        base, offset = self._place(instruction.pointer.text)
        return offset == GROUP_OFFSET and self._root(base) == MACHINE


def _of_call(call: Instruction) -> Root:
    if call.callee == "am_threadgroup_storage":
        slot = call.operands[0].integer
        return UNKNOWN if slot is None else Root("static", slot)
    return MACHINE if call.callee == "am_self" else UNKNOWN
