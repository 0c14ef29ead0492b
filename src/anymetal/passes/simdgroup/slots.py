"""Values that live in more than one block: variables, which LLVM turns into registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anymetal.passes.simdgroup.facts import PRIVATE, Facts
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.values import MASK, Code, Value, vector_type


@dataclass
class Slot:
    """Where a value lives between blocks: a variable for each of its scalars."""

    kind: str
    facts: Facts
    variables: list[str]


class Slots:
    """A slot for every phi, and for every value that another block asks for."""

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
            for parsed in instructions:
                for number, operand in enumerate(parsed.operands):
                    place = parsed.labels[number] if parsed.opcode == "phi" else label
                    self._want(operand.text, place, wanted)
        names = {name for name, _ in wanted}
        for name, (_, parsed) in self._kernel.definitions.items():
            elsewhere = name in names and not self._made_again(name)
            if parsed.opcode == "phi" or elsewhere:
                self._slots[name] = self._new(parsed.kind, self._facts[name])

    def _want(self, name: str, place: str, wanted: set[tuple[str, str]]) -> None:
        """Notes that a block uses a value of another one; patterns are computed again there."""
        definition = self._kernel.definitions.get(name)
        if definition is None or definition[0] == place or (name, place) in wanted:
            return
        wanted.add((name, place))
        if self._made_again(name):
            for operand in definition[1].operands:
                self._want(operand.text, place, wanted)

    def _made_again(self, name: str) -> bool:
        """Patterns cost little and cannot be kept where a condition goes with them."""
        parsed = self._kernel.definitions[name][1]
        facts = self._facts[name]
        if parsed.opcode in ("alloca", "phi"):
            return False
        if facts.tag is not None and facts.tag[0] == PRIVATE:
            return True
        return facts.is_pattern or facts.values is not None

    def _new(self, kind: str, facts: Facts) -> Slot:
        code = self._code
        if facts.is_varying:
            leaves = code.types.leaves(kind)
            return Slot(kind, facts, [code.variable(vector_type(leaf)) for leaf in leaves])
        return Slot(kind, facts, [code.variable(kind)])

    def read(self, slot: Slot) -> Value:
        code = self._code
        if not slot.facts.is_varying:
            text = code.load(slot.kind, slot.variables[0])
            return code.settled(slot.kind, slot.facts, text)
        leaves = code.types.leaves(slot.kind)
        pairs = zip(leaves, slot.variables, strict=True)
        values = [code.varying(leaf, code.load(vector_type(leaf), v)) for leaf, v in pairs]
        return code.assembled(slot.kind, iter(values))

    def texts(self, slot: Slot, value: Value) -> list[str]:
        """What to write into each variable of a slot."""
        if not slot.facts.is_varying:
            return [value.base]
        return [self._code.vector(leaf) for leaf in self._code.leaves_of(value)]

    def keep(self, name: str, value: Value) -> None:
        """Writes a value that all of this block's lanes have just computed."""
        slot = self._slots.get(name)
        if slot is not None:
            self.write(slot, self.texts(slot, value), None, "")

    def write(self, slot: Slot, texts: list[str], mask: str | None, taken: str) -> None:
        """`mask`: lanes that bring a value, None for all; `taken`: whether there are any."""
        code = self._code
        if not slot.facts.is_varying:
            text = texts[0]
            if taken:
                before = code.load(slot.kind, slot.variables[0])
                text = code.op(f"select i1 {taken}, {slot.kind} {text}, {slot.kind} {before}")
            code.store(slot.kind, text, slot.variables[0])
            return
        kinds = code.types.leaves(slot.kind)
        for kind, text, variable in zip(kinds, texts, slot.variables, strict=True):
            wide = vector_type(kind)
            merged = text
            if mask is not None:
                before = code.load(wide, variable)
                merged = code.op(f"select {MASK} {mask}, {wide} {text}, {wide} {before}")
            code.store(wide, merged, variable)
