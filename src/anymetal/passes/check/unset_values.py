"""Variables that nobody may have set: what is read of them counts where it is used.

`cur = next;` at the top of a loop copies a `next` that the first round has not set, and is right
where the first round makes nothing of `cur`. A copy to another such variable uses nothing either:
that variable is as unset as the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anymetal.ir import I8, Builder, Function, Instruction, Integer, Layout, Operand, constant, i64
from anymetal.passes.check.followed import Followed
from anymetal.passes.check.unset import LOCAL, constant_step

_SIZES = (1, 2, 4, 8, 16)
_ONES = 0x01010101010101010101010101010101


@dataclass(frozen=True)
class _Part:
    """Bytes of a variable, at an offset that is a constant."""

    variable: str
    offset: int
    size: int


class UnsetValues(Followed):
    """The reads of variables that are marked for it, and of their parts. `shadows` has, by a
    variable's name, its size and where a byte says of each of its own whether it was written."""

    def __init__(
        self,
        function: Function,
        users: Mapping[str, Sequence[Instruction]],
        shadows: Mapping[str, tuple[int, Operand]],
        layout: Layout,
    ) -> None:
        self._shadows = shadows
        # Addresses are replaced when accesses are checked: the variables are noted before.
        self._parts = _parts(function, layout)
        reads = {
            str(i.result): i
            for i in function.instructions()
            if id(i) in self._parts and i.opcode == "load" and users.get(str(i.result))
        }
        super().__init__(function, reads, users, "unset")

    def is_wrong(self, build: Builder, source: Instruction) -> Operand:
        part = self._parts[id(source)]
        marks = Integer(8 * part.size)
        known = build.load(marks, self._shadow(build, part), align=1)
        return build.icmp("ne", known, constant(marks, _ONES & (1 << 8 * part.size) - 1))

    def is_handed_on(self, store: Instruction) -> bool:
        is_known = id(store) in self._parts and store.opcode == "store"
        return is_known and store.value.text in self.sources

    def hand_on(self, build: Builder, store: Instruction) -> tuple[Operand, Operand, Operand]:
        """What to fill the shadow of the variable with that is stored to: where, what, how far."""
        part = self._parts[id(store)]
        is_set = build.icmp("eq", self.bits_of(store.value), i64(0))
        return self._shadow(build, part), build.cast("zext", is_set, I8), i64(part.size)

    def _shadow(self, build: Builder, part: _Part) -> Operand:
        _, written = self._shadows[part.variable]
        return build.offset(written, part.offset) if part.offset else written


def _parts(function: Function, layout: Layout) -> dict[int, _Part]:
    """What loads and stores touch of the variables that are marked, by the instruction."""
    names = {mark.operands[0].text for mark in function.calls(LOCAL)}
    allocas = (i for i in function.entry.instructions if str(i.result) in names)
    sizes = {str(i.result): layout.size(i.element) for i in allocas if i.element is not None}
    places = dict.fromkeys(sizes, 0)
    variables = {name: name for name in sizes}
    found: dict[int, _Part] = {}
    for instruction in function.instructions() if sizes else ():
        if instruction.opcode not in ("getelementptr", "load", "store"):
            continue
        pointer = instruction.pointer.text
        if pointer not in places:
            continue
        if instruction.opcode == "getelementptr":
            step = constant_step(instruction, layout)
            if step is not None:
                places[str(instruction.result)] = places[pointer] + step
                variables[str(instruction.result)] = variables[pointer]
            continue
        kind = instruction.type if instruction.opcode == "load" else instruction.value.type
        part = _Part(variables[pointer], places[pointer], layout.access_size(kind))
        is_inside = 0 <= part.offset <= sizes[part.variable] - part.size
        if part.size in _SIZES and is_inside:
            found[id(instruction)] = part
    return found
