"""Values that must not be used, followed through a kernel to where they are.

A bit goes with a value for each doubtful one that it comes from: a division by zero, a variable
that nobody has set. What stores such a value, branches on it or takes it as an address uses it, and
reports the bits that are set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from anymetal.ir import (
    BINARY,
    CASTS,
    I1,
    I64,
    VOID,
    Block,
    Builder,
    Function,
    Instruction,
    Operand,
    i64,
)

_MOST = 63  # values with a bit; more are taken for used at once
# What gives a value on to its result. Whatever else takes one uses it.
_PASSED_ON = BINARY | CASTS | {"fneg", "icmp", "fcmp", "select", "phi", "freeze", "getelementptr"}
_PASSED_ON |= {"extractelement", "insertelement", "shufflevector", "extractvalue", "insertvalue"}
# Calls of these do not use what they are given: they are checks, or notes to LLVM.
_NOTES = ("am_mark_", "llvm.lifetime.", "llvm.dbg.", "llvm.assume")


class Followed(ABC):
    """The doubtful values of one function, by their names, and where they go."""

    def __init__(
        self,
        function: Function,
        sources: Mapping[str, Instruction],
        users: Mapping[str, Sequence[Instruction]],
        word: str,
    ) -> None:
        self._users = users
        self.blocks: dict[int, Block] = {
            id(i): block for block in function.blocks if sources for i in block.instructions
        }
        self.sources = sources
        later = [name for name in sources if not self._is_used_at_once(name)]
        self._bits = {name: 1 << number for number, name in enumerate(later[:_MOST])}
        self._names = {
            value: f"%am.{word}.{number}" for number, value in enumerate(self._reached())
        }

    @abstractmethod
    def is_wrong(self, build: Builder, source: Instruction) -> Operand:
        """Whether a source gives what must not be used."""

    def is_handed_on(self, store: Instruction) -> bool:
        """Whether a store uses nothing: something else knows what becomes of the value."""
        return False

    @property
    def followed(self) -> list[Instruction]:
        """The sources that have a bit, the lowest first."""
        return [self.sources[name] for name in self._bits]

    def is_used_at_once(self, instruction: Instruction) -> bool:
        """Whether it is a source whose block also uses the result, whatever happens."""
        return instruction.result in self.sources and instruction.result not in self._bits

    def is_followed(self, instruction: Instruction) -> bool:
        return bool(self._names) and instruction.result in self._names

    def follow(self, build: Builder, instruction: Instruction) -> None:
        """Computes the bits that go with a value."""
        name = self._names[str(instruction.result)]
        if instruction.opcode == "phi":
            incoming = [(self.bits_of(value), label) for value, label in instruction.incoming()]
            build.phi(I64, incoming, name=name)
            return
        own = i64(0)
        if instruction.result in self._bits:
            wrong = self.is_wrong(build, instruction)
            own = build.select(wrong, i64(self._bits[instruction.result]), i64(0))
        first, *others = self._carried_by(build, instruction) or [i64(0)]
        for other in others:
            first = build.or_(first, other)
        build.or_(own, first, name=name)

    def used(self, instruction: Instruction) -> Iterator[Operand]:
        """The bits of the values that an instruction uses."""
        if self._names and self._uses(instruction):
            for name in dict.fromkeys(instruction.names):
                if name in self._names:
                    yield Operand(I64, self._names[name])

    def bits_of(self, value: Operand) -> Operand:
        """The bits that go with a value."""
        name = self._names.get(value.text)
        return Operand(I64, name) if name else i64(0)

    def _uses(self, user: Instruction) -> bool:
        if user.opcode == "call" and (user.callee or "").startswith(_NOTES):
            return False
        return not _passes_on(user) and not self.is_handed_on(user)

    def _carried_by(self, build: Builder, instruction: Instruction) -> list[Operand]:
        """The bits of the operands that count: a select takes one of two values, and a conjunction
        with something false does not depend on its other side."""
        operands = instruction.operands
        bits = [self.bits_of(operand) for operand in operands]
        if instruction.opcode == "select" and operands[0].type is I1:
            return [bits[0], build.select(operands[0], bits[1], bits[2])]
        places = [place for place, carried in enumerate(bits) if carried.is_name]
        if _is_logic(instruction) and len(places) == 1:
            (place,) = places
            pair = (bits[place], i64(0)) if instruction.opcode == "and" else (i64(0), bits[place])
            return [build.select(operands[1 - place], pair[0], pair[1])]
        return [bits[place] for place in places]

    def _reached(self) -> list[str]:
        """All values that results with a bit go into."""
        found = dict.fromkeys(self._bits)
        waiting = list(found)
        while waiting:
            for user in self._users.get(waiting.pop(), ()):
                if _passes_on(user) and user.result not in found:
                    found[str(user.result)] = None
                    waiting.append(str(user.result))
        return list(found)

    def _is_used_at_once(self, name: str) -> bool:
        """Follows a result within its block, through what depends on it in any case."""
        block = self.blocks[id(self.sources[name])]
        waiting, seen = [name], {name}
        while waiting:
            value = waiting.pop()
            for user in self._users.get(value, ()):
                if self.blocks.get(id(user)) is not block:
                    continue
                if self._uses(user):
                    return True
                if _passes_on(user) and _depends(user, value) and user.result not in seen:
                    seen.add(str(user.result))
                    waiting.append(str(user.result))
        return False


def _passes_on(user: Instruction) -> bool:
    if user.opcode == "call":
        return user.type is not VOID and (user.callee or "").startswith("llvm.")
    return user.opcode in _PASSED_ON


def _depends(user: Instruction, value: str) -> bool:
    """Whether a result depends on an operand whatever the others are."""
    if user.opcode == "select":
        return user.operands[0].text == value
    return user.opcode != "phi" and not _is_logic(user)


def _is_logic(instruction: Instruction) -> bool:
    return instruction.opcode in ("and", "or") and instruction.type is I1
