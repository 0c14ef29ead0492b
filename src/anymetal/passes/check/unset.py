"""Local variables that may be read before they are set stay in memory, where reads are checked.

Everywhere else a variable becomes registers, and a read of nothing any value LLVM likes. Here its
address goes to a mark, and so it stays a variable until the checks are in place.

Variables of several parts, such as vectors and structs, are followed byte by byte. A part is
doubtful where some path has not set it; the whole, as a copy or a function takes it, where some
path has set nothing of it: members that nobody looks at need not be set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anymetal.ir import (
    PTR,
    VOID,
    Block,
    Builder,
    Float,
    Function,
    Instruction,
    Integer,
    Layout,
    Operand,
    Pointer,
)
from anymetal.passes.check.padding import is_union

LOCAL = "am_mark_local"
_LARGE = ("[", "{", "<", "%")  # how the types begin that are not scalars
_MOST_BYTES = 1024
_COPIES = ("llvm.memcpy", "llvm.memmove")
_CONSTRUCTOR = re.compile(r"_ZN.*C[12]E|_ZN.*C[12]I")


def keep_unset_variables(function: Function, layout: Layout) -> None:
    """Marks the variables of a function that some path reads before it sets them."""
    found = _candidates(function)
    if not found:
        return
    variables = _Variables(function, layout, found)
    doubtful = _read_unset(function, variables) if variables.by_name else set()
    build = Builder(function.fresh)
    for name in variables.by_name:
        if name in doubtful:
            build.call(VOID, LOCAL, [Operand(PTR, name)], function_type="(...)")
    if build.made:
        locate(function, build.made)
        function.at_entry(build.made)


def _candidates(function: Function) -> set[str]:
    """The variables that are not set at once where they begin: mostly none.

    Looks at the text alone: taking every instruction apart would cost more than all that follows.
    """
    scalars, others = _allocas(function)
    waiting, found = set(scalars), set[str]()
    for block in function.blocks:
        begun: set[str] = set()  # of several parts
        for instruction in block.instructions:
            opcode, text = instruction.opcode, instruction.text
            if opcode == "load" and (name := _pointer(text)) in waiting:
                found.add(name)
            elif opcode == "store":
                waiting.discard(_pointer(text))
            elif opcode == "call" and "@llvm.lifetime.start" in text:
                name = _pointer(text)
                (begun if name in others else waiting).add(name)
                continue
            for name in [name for name in begun if _names(text, name)]:
                begun.remove(name)
                if not _sets_all(instruction, name):
                    found.add(name)
        found |= waiting | begun
        waiting.clear()
    return found


def _allocas(function: Function) -> tuple[set[str], set[str]]:
    """The variables of one number, and those of several parts."""
    allocas = [i for i in function.entry.instructions if i.opcode == "alloca"]
    large = {str(i.result) for i in allocas if i.text.partition("alloca ")[2].startswith(_LARGE)}
    return {str(i.result) for i in allocas} - large, large


def _names(text: str, name: str) -> bool:
    at = text.find(name)
    while at >= 0:
        behind = text[at + len(name) : at + len(name) + 1]
        if not (behind.isalnum() or behind in "._-$") or not behind:
            return True
        at = text.find(name, at + 1)
    return False


def _sets_all(instruction: Instruction, name: str) -> bool:
    """Whether it is how a variable is set: what a call returns, a constructor, or a copy."""
    if instruction.opcode == "store":
        return instruction.pointer.text == name
    callee = instruction.callee or ""
    if callee.startswith((*_COPIES, "llvm.memset")) or _CONSTRUCTOR.match(callee):
        return instruction.operands[0].text == name
    return _is_returned(instruction, name)


def _is_returned(call: Instruction, name: str) -> bool:
    """Whether a call returns its result in a variable."""
    if call.opcode != "call" or not call.operands or call.operands[0].text != name:
        return False
    return any(attribute.startswith("sret") for attribute in call.attributes[0])


def _pointer(text: str) -> str:
    """The address that a load, a store or a lifetime names last."""
    start = text.rfind("ptr ") + len("ptr ")
    return text[start:].partition(",")[0].partition(")")[0]


def locate(function: Function, marks: list[Instruction]) -> None:
    """A call that is to be inlined needs a place in the source: any of the function's."""
    places = (i.metadata["dbg"] for i in function.instructions() if "dbg" in i.metadata)
    place = next(places, None)
    for mark in marks if place else ():
        mark.attach("dbg", str(place))


@dataclass(frozen=True)
class _Part:
    """Bytes of a variable, as bits of one number for all variables. `whole`: all of it, or which of
    it is not known."""

    variable: str
    bits: int
    whole: bool


@dataclass(frozen=True)
class _Address:
    """Where a pointer points; None for an offset that is not a constant."""

    variable: str
    offset: int | None


class _Variables:
    """The variables of a function that are known to nobody else, and what its code does to them."""

    def __init__(self, function: Function, layout: Layout, names: set[str]) -> None:
        self._layout = layout
        self.by_name: dict[str, tuple[int, int]] = {}  # the first of its bits, and how many
        self._addresses: dict[str, _Address] = {}
        self._find(function, names)
        for instruction in function.instructions() if self.by_name else ():
            self._follow(instruction)

    def _find(self, function: Function, names: set[str]) -> None:
        first = 0
        for alloca in function.entry.instructions:
            name, kind = str(alloca.result), alloca.element if alloca.opcode == "alloca" else None
            if kind is None or name not in names or is_union(kind):
                continue
            size = self._layout.size(kind)
            if size > _MOST_BYTES or not (self._layout.parts(kind) or _is_scalar(kind)):
                continue
            self.by_name[name] = (first, size)
            self._addresses[name] = _Address(name, 0)
            first += size

    def _follow(self, instruction: Instruction) -> None:
        """Notes the address of a part; forgets a variable whose address goes elsewhere."""
        for name in instruction.names:
            address = self._addresses.get(name)
            if address is None:
                continue
            if instruction.opcode == "getelementptr" and instruction.pointer.text == name:
                step, start = constant_step(instruction, self._layout), address.offset
                offset = None if step is None or start is None else start + step
                self._addresses[str(instruction.result)] = _Address(address.variable, offset)
            elif not _is_plain_use(instruction, name):
                self.by_name.pop(address.variable, None)

    @property
    def everything(self) -> int:
        first, size = list(self.by_name.values())[-1]
        return (1 << first + size) - 1

    def part(self, pointer: str, size: int | None) -> _Part | None:
        """What `size` bytes at a pointer are of; None where it is no variable."""
        address = self._addresses.get(pointer)
        if address is None or address.variable not in self.by_name:
            return None
        first, length = self.by_name[address.variable]
        if address.offset is None or size is None or size >= length:
            return _Part(address.variable, ((1 << length) - 1) << first, True)
        return _Part(address.variable, ((1 << size) - 1) << first + address.offset, False)

    def events(self, instruction: Instruction) -> Iterator[tuple[str, _Part]]:
        """What an instruction does to variables, in order: begins, reads or sets parts of them."""
        if instruction.opcode in ("load", "store"):
            is_load = instruction.opcode == "load"
            kind = instruction.type if is_load else instruction.value.type
            part = self.part(instruction.pointer.text, self._layout.access_size(kind))
            if part is not None:
                yield "read" if is_load else "set", part
        elif instruction.opcode == "call":
            yield from self._events_of_call(instruction)

    def _events_of_call(self, call: Instruction) -> Iterator[tuple[str, _Part]]:
        callee = call.callee or ""
        is_copy = callee.startswith(_COPIES)
        size = call.operands[2].integer if is_copy or callee.startswith("llvm.memset") else None
        # What a copy takes is read before what it gives is set.
        for place, operand in reversed(list(enumerate(call.operands))):
            part = self.part(operand.text, size)
            if part is None or callee.startswith("llvm.lifetime.end"):
                continue
            if callee.startswith("llvm.lifetime.start"):
                yield "begin", part
                continue
            is_target = place == 0 and (
                callee.startswith("llvm.mem") or _sets_all(call, operand.text)
            )
            if not is_target:
                yield "read", part
            if is_target or not is_copy:
                yield "set", part


def constant_step(step: Instruction, layout: Layout) -> int | None:
    """The bytes that a getelementptr adds; None where they are not a constant."""
    if step.element is None or any(index.integer is None for index in step.operands[1:]):
        return None
    first, *others = (index.integer or 0 for index in step.operands[1:])
    kind, offset = step.element, first * layout.size(step.element)
    for index in others:
        offset += layout.offset(kind, index)
        kind = layout.parts(kind)[index]
    return offset


def _is_scalar(kind: object) -> bool:
    return isinstance(kind, Integer | Float | Pointer)


def _is_plain_use(instruction: Instruction, name: str) -> bool:
    if instruction.opcode == "store":
        return instruction.value.text != name
    return instruction.opcode in ("load", "call")


def _read_unset(function: Function, variables: _Variables) -> set[str]:
    """The variables that are read where some path from their start has not set them."""
    is_set = {block.label: variables.everything for block in function.blocks}
    is_set[function.entry.label] = 0
    waiting, doubtful = [function.entry], set[str]()
    blocks = {block.label: block for block in function.blocks}
    events = {block.label: _events(block, variables) for block in function.blocks}
    seen: set[str] = set()
    while waiting:
        block = waiting.pop()
        seen.add(block.label)
        after = _walk(events[block.label], is_set[block.label], doubtful)
        for label in block.successors:
            joined = is_set[label] & after
            if joined != is_set[label] or label not in seen:
                is_set[label] = joined
                waiting.append(blocks[label])
    return doubtful


def _events(block: Block, variables: _Variables) -> list[tuple[str, _Part]]:
    return [event for instruction in block.instructions for event in variables.events(instruction)]


def _walk(events: list[tuple[str, _Part]], is_set: int, doubtful: set[str]) -> int:
    """What is set at the end of a block; notes what it reads unset."""
    for what, part in events:
        match what:
            case "set":
                is_set |= part.bits
            case "begin":
                is_set &= ~part.bits
            case "read":
                known = is_set & part.bits
                if not known if part.whole else known != part.bits:
                    doubtful.add(part.variable)
    return is_set
