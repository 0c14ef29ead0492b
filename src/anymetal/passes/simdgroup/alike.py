"""What is the same in simdgroups of a threadgroup that begin at one place in x.

Looked at in vector code as it is called, resumable functions included: a simdgroup's variables, its
frame, and what it reads of its own description (`self`) are its own; the threadgroup's description,
the arguments and what is computed of them alone are not.
"""

from __future__ import annotations

from collections.abc import Iterable

from anymetal.ir import BINARY, CASTS, I8, Block, Function, Instruction, Operand
from anymetal.passes.simdgroup.positions import GROUP_POINTER
from anymetal.passes.simdgroup.rules import GROUP, MEMORY_INTRINSICS, POSITION

_PURE = (
    BINARY
    | CASTS
    | {"getelementptr", "icmp", "fcmp", "fneg", "select", "freeze"}
    | {"insertelement", "extractelement", "shufflevector", "insertvalue", "extractvalue"}
)
_NOT_PURE = (*MEMORY_INTRINSICS, "llvm.prefetch", "llvm.lifetime", "llvm.assume")


def is_pure(instruction: Instruction) -> bool:
    """Whether a result depends on the operands alone, and nothing else comes of it."""
    callee = instruction.callee
    if callee is not None:
        return callee.startswith("llvm.") and not callee.startswith(_NOT_PURE)
    return instruction.opcode in _PURE


class Alike:
    """Answers for one function `(ptr buffers, ptr self, ptr frame)`."""

    def __init__(self, function: Function) -> None:
        self._buffers, self._self, self._frame = (p.name for p in function.parameters)
        self._made = function.definitions()
        self._entry = {i.result for i in function.entry.instructions}
        self.variables = {i.result: i for i in function.instructions() if i.opcode == "alloca"}
        self._stored: dict[str, list[Operand]] = {}
        self._in_parts: set[str] = set()  # variables that are not read and written whole
        self._known: dict[str, bool] = {}
        for instruction in function.instructions():
            self._note(instruction)

    def _note(self, instruction: Instruction) -> None:
        if instruction.opcode == "store":
            place = self.place(instruction.pointer)
            if place is not None:
                self._stored.setdefault(place, []).append(instruction.value)
        for number, operand in enumerate(instruction.operands):
            variable = self.variables.get(operand.text)
            if variable is not None and not _is_whole(instruction, number, variable):
                self._in_parts.add(operand.text)

    def place(self, pointer: Operand) -> str | None:
        """A variable, or a place in the frame; None for anything else."""
        name = pointer.text
        if name in self.variables:
            return name
        step = self._made.get(name)
        if step is None or name in self._entry or step.opcode != "getelementptr":
            return None
        if step.pointer.text != self._frame or step.element is not I8 or len(step.operands) != 2:
            return None
        distance = step.operands[1].integer
        return f"{self._frame}+{distance}" if distance is not None else None

    def root(self, pointer: Operand) -> str:
        """What an address starts from."""
        name = pointer.text
        while (step := self._made.get(name)) is not None and step.opcode == "getelementptr":
            name = step.pointer.text
        return name

    def is_own(self, pointer: Operand) -> bool:
        """Whether an address is in a variable or in the frame."""
        return self.root(pointer) in {*self.variables, self._frame}

    # ---- anywhere ----------------------------------------------------------------------------

    def always(self, operand: Operand) -> bool:
        """Whether a value is the same wherever simdgroups compute it."""
        name = operand.text
        if not operand.is_name or name in (self._buffers, GROUP_POINTER.text):
            return True
        if name not in self._known:
            self._known[name] = False  # while it is looked at
            made = self._made.get(name)
            self._known[name] = made is not None and self._is_always(made)
        return self._known[name]

    def _is_always(self, made: Instruction) -> bool:
        if made.opcode == "load":
            return self._is_always_loaded(made)
        return is_pure(made) and all(map(self.always, made.operands))

    def _is_always_loaded(self, load: Instruction) -> bool:
        place = self.place(load.pointer)
        if place is not None:
            return self.is_settled(place)
        root = self.root(load.pointer)
        if root == self._self:
            return self._distance(load.pointer) in (POSITION, GROUP)
        is_lasting = "invariant.load" in load.metadata or root == GROUP_POINTER.text
        return is_lasting and not load.is_volatile and self.always(load.pointer)

    def _distance(self, pointer: Operand) -> int | None:
        step = self._made[pointer.text]
        is_direct = len(step.operands) == 2 and step.pointer.text == self._self
        return step.operands[1].integer if is_direct and step.element is I8 else None

    def is_settled(self, place: str) -> bool:
        """Whether one value is all that is ever written to a place, and always the same."""
        sources = self._sources(place, set())
        return place not in self._in_parts and len(sources) == 1 and self.always(sources.pop())

    def _sources(self, place: str, seen: set[str]) -> set[Operand]:
        """The values that are written to a place, copies from other places followed."""
        seen.add(place)
        found: set[Operand] = set()
        for value in self._stored.get(place, ()):
            made = self._made.get(value.text)
            other = self.place(made.pointer) if made is not None and made.opcode == "load" else None
            if other is None:
                found.add(value)
            elif other not in seen:
                found |= self._sources(other, seen)
        return found

    # ---- in code that simdgroups run together ------------------------------------------------

    def within(self, blocks: Iterable[Block]) -> set[str]:
        """The values and variables that are the same for simdgroups which run blocks side by side,
        as long as they take the same way through them, and write nothing that others see."""
        instructions = [i for block in blocks for i in block.instructions]
        inside = {i.result for i in instructions if i.result is not None}
        written = {self.place(i.pointer) for i in instructions if i.opcode == "store"}
        alike = inside | (written & self.variables.keys()) - self._in_parts

        def is_alike(operand: Operand) -> bool:
            return operand.text in alike if operand.text in inside else self.always(operand)

        def differs(instruction: Instruction) -> str | None:
            if instruction.opcode == "store":
                place = self.place(instruction.pointer)
                return place if place in alike and not is_alike(instruction.value) else None
            if instruction.result not in alike:
                return None
            if instruction.opcode == "load":
                place = self.place(instruction.pointer)
                if place in self.variables:
                    return None if place in alike else instruction.result
                same = self.is_settled(place) if place else is_alike(instruction.pointer)
            else:
                same = is_pure(instruction) and all(map(is_alike, instruction.operands))
            return None if same else instruction.result

        while refuted := {name for i in instructions if (name := differs(i)) is not None}:
            alike -= refuted
        return {name for name in alike if name is not None}


def _is_whole(access: Instruction, number: int, variable: Instruction) -> bool:
    if access.opcode == "load":
        return access.type is variable.element and not access.is_volatile
    is_store = access.opcode == "store" and number == 1 and not access.is_volatile
    return is_store and access.value.type is variable.element
