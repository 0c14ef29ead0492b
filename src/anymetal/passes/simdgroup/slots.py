"""Values that live in more than one block: variables, which LLVM turns into registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anymetal.ir import Operand, Type
from anymetal.passes.simdgroup.facts import PRIVATE, Facts
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.values import Code, Value, vector_type


@dataclass
class Slot:
    """Where a value lives between blocks: a variable for each of its scalars."""

    type: Type
    facts: Facts
    variables: list[Operand]


class Slots:
    """A slot for every phi, and for every value that is live in another block."""

    def __init__(self, code: Code, kernel: Kernel, facts: Mapping[str, Facts]) -> None:
        self._code = code
        self._kernel = kernel
        self._facts = facts
        self._slots: dict[str, Slot] = {}
        self._make()

    def get(self, name: str) -> Slot | None:
        return self._slots.get(name)

    def __getitem__(self, name: str) -> Slot:
        return self._slots[name]

    def _make(self) -> None:
        wanted: set[tuple[str, str]] = set()
        for label, instructions in self._kernel.blocks.items():
            for instruction in instructions:
                for number, operand in enumerate(instruction.operands):
                    place = instruction.labels[number] if instruction.opcode == "phi" else label
                    self._want(operand.text, place, wanted)
        names = {name for name, _ in wanted}
        for name, (_, instruction) in self._kernel.definitions.items():
            elsewhere = name in names and not self._is_rematerialised(name)
            if instruction.opcode == "phi" or elsewhere:
                self._slots[name] = self._new(instruction.type, self._facts[name])

    def _want(self, name: str, place: str, wanted: set[tuple[str, str]]) -> None:
        """Notes that a block uses a value of another one; patterns are rematerialised there."""
        definition = self._kernel.definitions.get(name)
        if definition is None or definition[0] == place or (name, place) in wanted:
            return
        wanted.add((name, place))
        if self._is_rematerialised(name):
            for operand in definition[1].operands:
                self._want(operand.text, place, wanted)

    def _is_rematerialised(self, name: str) -> bool:
        """Patterns are cheap to rematerialise, and a slot would lose the condition under which they
        hold."""
        instruction = self._kernel.definitions[name][1]
        facts = self._facts[name]
        if instruction.opcode in ("alloca", "phi"):
            return False
        if facts.tag is not None and facts.tag[0] == PRIVATE:
            return True
        return facts.is_pattern or facts.values is not None

    def _new(self, kind: Type, facts: Facts) -> Slot:
        code = self._code
        if facts.is_varying:
            leaves = code.types.leaves(kind)
            return Slot(kind, facts, [code.variable(vector_type(leaf)) for leaf in leaves])
        return Slot(kind, facts, [code.variable(kind)])

    def read(self, slot: Slot) -> Value:
        code = self._code
        if not slot.facts.is_varying:
            base = code.load(slot.type, slot.variables[0])
            return code.settled(slot.type, slot.facts, base)
        leaves = code.types.leaves(slot.type)
        pairs = zip(leaves, slot.variables, strict=True)
        values = [code.varying(code.load(vector_type(leaf), v)) for leaf, v in pairs]
        return code.assembled(slot.type, iter(values))

    def scalars(self, slot: Slot, value: Value) -> list[Operand]:
        """What to write into each variable of a slot."""
        if not slot.facts.is_varying:
            return [value.start]
        return [self._code.vector(leaf) for leaf in self._code.leaves_of(value)]

    def keep(self, name: str, value: Value) -> None:
        """Writes a value that all active lanes of this block have just computed."""
        slot = self._slots.get(name)
        if slot is not None:
            self.write(slot, self.scalars(slot, value), None, None)

    def write(
        self, slot: Slot, scalars: list[Operand], mask: Operand | None, taken: Operand | None
    ) -> None:
        """`mask`: lanes that bring a value, None for all; `taken`: whether there are any."""
        code = self._code
        if not slot.facts.is_varying:
            mask = taken
        for scalar, variable in zip(scalars, slot.variables, strict=True):
            new = scalar
            if mask is not None:
                new = code.select(mask, scalar, code.load(scalar.type, variable))
            code.store(new, variable)
