"""Divisions whose results are followed, to tell one by zero that matters from one that does not.

`uint q = i / n; if (n != 0) y[i] = q;` divides by zero where n is 0, and nobody uses what comes out
of it. So a division is marked twice: by a check where it stands, and by a call in its place, which
has no side effects and thus goes where its result is never used. Where the result is, bits go with
it through the kernel's values, one for each division by zero that they come from, and what stores
such a value, branches on it or takes it as an address reports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anymetal.ir import (
    BINARY,
    CASTS,
    I1,
    I32,
    I64,
    VOID,
    Block,
    Builder,
    Function,
    Instruction,
    Module,
    Operand,
    constant,
    i32,
    i64,
)
from anymetal.passes.lower.arithmetic import DIVISIONS
from anymetal.passes.rewrite import rewrite

QUOTIENT = "am_quotient"
_OPCODES = sorted(DIVISIONS)
_MOST = 63  # divisions with a bit; more are taken for used at once
_PURE = ("memory(none)", "nounwind", "willreturn")
# What gives a value on to its result. Whatever else takes one uses it.
_PASSED_ON = BINARY | CASTS | {"fneg", "icmp", "fcmp", "select", "phi", "freeze", "getelementptr"}
_PASSED_ON |= {"extractelement", "insertelement", "shufflevector", "extractvalue", "insertvalue"}
# Calls of these do not use what they are given: they are checks, or notes to LLVM.
_NOTES = ("am_mark_", "llvm.lifetime.", "llvm.dbg.", "llvm.assume")


def hide(build: Builder, module: Module, division: Instruction) -> None:
    """A call instead of a division: no pass may take anything from a divisor being unlike zero."""
    name = f"{QUOTIENT}.{division.type}"
    module.declare(name, division.type, [I32, division.type, division.type], _PURE)
    operands = [i32(_OPCODES.index(division.opcode)), *division.operands]
    build.call(division.type, name, operands, name=str(division.result))
    if "dbg" in division.metadata:
        build.made[-1].attach("dbg", division.metadata["dbg"])


def restore(function: Function) -> dict[str, Instruction]:
    """Divisions again for all calls; gives those that may be by zero, by their results."""
    found: dict[str, Instruction] = {}

    def emit(build: Builder, call: Instruction) -> bool:
        if not (call.callee or "").startswith(QUOTIENT):
            return False
        opcode, left, right = call.operands
        build.binary(_OPCODES[opcode.integer or 0], left, right, name=str(call.result))
        division = build.made[-1]
        if "dbg" in call.metadata:
            division.attach("dbg", call.metadata["dbg"])
        if right.integer is None or right.integer == 0:
            found[str(call.result)] = division
        return True

    rewrite(function, emit)
    return found


class Quotients:
    """The divisions of one function, and where their results go."""

    def __init__(
        self,
        function: Function,
        divisions: Mapping[str, Instruction],
        users: Mapping[str, Sequence[Instruction]],
    ) -> None:
        self._users = users
        self._blocks: dict[int, Block] = {
            id(i): block for block in function.blocks if divisions for i in block.instructions
        }
        self.divisions = divisions
        later = [name for name in divisions if not self._is_used_at_once(name)]
        self._bits = {name: 1 << number for number, name in enumerate(later[:_MOST])}
        self._names = {
            value: f"%am.quotient.{number}" for number, value in enumerate(self._reached())
        }

    @property
    def followed(self) -> list[Instruction]:
        """The divisions that have a bit, the lowest first."""
        return [self.divisions[name] for name in self._bits]

    def is_used_at_once(self, instruction: Instruction) -> bool:
        """Whether it is a division whose block also uses the result, whatever happens."""
        return instruction.result in self.divisions and instruction.result not in self._bits

    def stands_for(self, mark: Instruction) -> bool:
        """Whether a division that is used at once follows its mark: then its check is enough."""
        return any(
            self.is_used_at_once(division)
            and division.operands[1].text == mark.operands[0].text
            and division.metadata.get("dbg") == mark.metadata.get("dbg")
            and self._blocks[id(division)] is self._blocks[id(mark)]
            for division in self.divisions.values()
        )

    def is_followed(self, instruction: Instruction) -> bool:
        return bool(self._names) and instruction.result in self._names

    def follow(self, build: Builder, instruction: Instruction) -> None:
        """Computes the bits that go with a value."""
        name = self._names[str(instruction.result)]
        if instruction.opcode == "phi":
            incoming = [(self._carried(value), label) for value, label in instruction.incoming()]
            build.phi(I64, incoming, name=name)
            return
        own = i64(0)
        if instruction.result in self._bits:
            divisor = instruction.operands[1]
            by_zero = build.icmp("eq", divisor, constant(divisor.type, 0))
            own = build.select(by_zero, i64(self._bits[instruction.result]), i64(0))
        first, *others = self._carried_by(build, instruction) or [i64(0)]
        for other in others:
            first = build.or_(first, other)
        build.or_(own, first, name=name)

    def used(self, instruction: Instruction) -> Iterator[Operand]:
        """The bits of the values that an instruction uses."""
        if self._names and _uses(instruction):
            for name in dict.fromkeys(instruction.names):
                if name in self._names:
                    yield Operand(I64, self._names[name])

    def _carried_by(self, build: Builder, instruction: Instruction) -> list[Operand]:
        """The bits of the operands that count: a select takes one of two values, and a conjunction
        with something false does not depend on its other side."""
        operands = instruction.operands
        bits = [self._carried(operand) for operand in operands]
        if instruction.opcode == "select" and operands[0].type is I1:
            return [bits[0], build.select(operands[0], bits[1], bits[2])]
        places = [place for place, carried in enumerate(bits) if carried.is_name]
        if _is_logic(instruction) and len(places) == 1:
            (place,) = places
            pair = (bits[place], i64(0)) if instruction.opcode == "and" else (i64(0), bits[place])
            return [build.select(operands[1 - place], pair[0], pair[1])]
        return [bits[place] for place in places]

    def _carried(self, value: Operand) -> Operand:
        name = self._names.get(value.text)
        return Operand(I64, name) if name else i64(0)

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
        block = self._blocks[id(self.divisions[name])]
        waiting, seen = [name], {name}
        while waiting:
            value = waiting.pop()
            for user in self._users.get(value, ()):
                if self._blocks.get(id(user)) is not block:
                    continue
                if _uses(user):
                    return True
                if _passes_on(user) and _depends(user, value) and user.result not in seen:
                    seen.add(str(user.result))
                    waiting.append(str(user.result))
        return False


def _passes_on(user: Instruction) -> bool:
    if user.opcode == "call":
        return user.type is not VOID and (user.callee or "").startswith("llvm.")
    return user.opcode in _PASSED_ON


def _uses(user: Instruction) -> bool:
    if user.opcode == "call" and (user.callee or "").startswith(_NOTES):
        return False
    return not _passes_on(user)


def _depends(user: Instruction, value: str) -> bool:
    """Whether a result depends on an operand whatever the others are."""
    if user.opcode == "select":
        return user.operands[0].text == value
    return user.opcode != "phi" and not _is_logic(user)


def _is_logic(instruction: Instruction) -> bool:
    return instruction.opcode in ("and", "or") and instruction.type is I1
