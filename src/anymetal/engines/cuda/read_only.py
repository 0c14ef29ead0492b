"""Loads from buffers that a kernel only reads become `ld.global.nc`: the hardware may keep them in
its read-only cache, and the assembler may move them over stores. Apple's compiler takes the same
leave: it assumes that buffers do not overlap.
"""

from __future__ import annotations

from collections.abc import Collection

from anymetal.engines.cuda.block import Block
from anymetal.ir import Function, Instruction, Module

_POINTS_ON = ("addrspacecast", "bitcast", "freeze", "getelementptr")
_UNKNOWN = None


def mark_read_only_loads(
    module: Module, function: Function, block: Block, buffers: Collection[int]
) -> None:
    """Marks the loads whose address can only lie in one of `buffers`."""
    roots = _Roots(function, block)
    invariant = {"invariant.load": module.metadata(0, "")}
    for instruction in function.instructions():
        if instruction.opcode != "load" or instruction.is_atomic or instruction.is_volatile:
            continue
        found = roots.of(instruction.pointer.text)
        if found and all(root in buffers for root in found):
            instruction.metadata = instruction.metadata | invariant


class _Roots:
    """The buffers that a pointer may point into; a part of them is unknown where None is one."""

    def __init__(self, function: Function, block: Block) -> None:
        self._definitions = function.definitions()
        self._parameter = function.parameters[0].name
        self._block = block
        self._known: dict[str, frozenset[int | None]] = {}

    def of(self, name: str) -> frozenset[int | None]:
        """Walks from a pointer to where it comes from; a loop's own pointer adds nothing."""
        if name in self._known:
            return self._known[name]
        found: set[int | None] = set()
        seen, waiting = {name}, [name]
        while waiting:
            definition = self._definitions.get(waiting.pop())
            if definition is None:
                found.add(_UNKNOWN)
                continue
            sources = _sources(definition)
            if sources is None:
                found.add(self._buffer(definition))
                continue
            waiting += [source for source in sources if source not in seen]
            seen.update(sources)
        self._known[name] = frozenset(found)
        return self._known[name]

    def _buffer(self, definition: Instruction) -> int | None:
        """The buffer whose address in the block of arguments this is made of."""
        if definition.opcode != "inttoptr":
            return _UNKNOWN
        load = self._definitions.get(definition.operands[0].text)
        if load is None or load.opcode != "load":
            return _UNKNOWN
        place = self._definitions.get(load.pointer.text)
        if place is None or place.opcode != "getelementptr":
            return _UNKNOWN
        offset = place.operands[-1].integer
        if place.pointer.text != self._parameter or offset is None:
            return _UNKNOWN
        return self._block.buffer_at(offset)


def _sources(definition: Instruction) -> list[str] | None:
    """The pointers that one is made of; None for the start of a chain."""
    if definition.opcode in _POINTS_ON:
        return [definition.operands[0].text]
    if definition.opcode == "select":
        return [operand.text for operand in definition.operands[1:]]
    if definition.opcode == "phi":
        return [operand.text for operand, _ in definition.incoming()]
    return None
