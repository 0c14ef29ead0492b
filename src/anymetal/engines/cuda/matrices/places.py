"""Where a pointer into threadgroup memory points: a base, a constant distance from it, and the
power of two that divides both. The hardware reads whole rows of a matrix, at multiples of 16 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from anymetal.ir import Function, Instruction, Layout, Operand

_VARIABLE = r"addrspacecast \(ptr addrspace\(3\) @_ZN9am_shared\w+ to ptr\)"
# A variable, or a place at a constant distance from its start.
_SHARED = re.compile(
    r"^(?:getelementptr [a-z ]*\(i8, ptr )?"
    rf"(?P<variable>{_VARIABLE})(?:, i64 (?P<distance>\d+)\))?$"
)
ALIGNMENT = 16  # of every threadgroup variable
_BITS = 64
_SMALLEST_OF_BOTH = ("add", "sub", "or", "xor")
_AS_IT_WAS = ("zext", "sext", "trunc", "freeze")


@dataclass(frozen=True)
class Place:
    """`offset` bytes behind `base`; the base is a multiple of `multiple` bytes."""

    base: Operand
    offset: int
    multiple: int


class Places:
    """The places of a function's pointers."""

    def __init__(self, function: Function) -> None:
        self._definitions = function.definitions()
        self._layout = Layout()
        self._zeros: dict[str, int] = {}

    def of(self, pointer: Operand) -> Place | None:
        """None for a pointer that may lie outside threadgroup memory."""
        offset = 0
        while (step := self._step(pointer)) is not None and step[1].integer is not None:
            distance = step[1].integer
            pointer, offset = step[0], offset + distance * step[2]
        if shared := _SHARED.match(pointer.text):
            pointer = Operand(pointer.type, shared["variable"])
            offset += int(shared["distance"] or 0)
        zeros = self._pointer_zeros(pointer)
        return None if zeros is None else Place(pointer, offset, 1 << zeros)

    def _step(self, pointer: Operand) -> tuple[Operand, Operand, int] | None:
        """What a pointer was made of: another, an index, and how many bytes it counts."""
        made = self._definitions.get(pointer.text)
        if made is None or made.opcode != "getelementptr" or len(made.operands) != 2:
            return None
        assert made.element is not None
        return made.operands[0], made.operands[1], self._layout.size(made.element)

    def _pointer_zeros(self, pointer: Operand) -> int | None:
        """How often two divides an address; None where it may lie elsewhere."""
        if shared := _SHARED.match(pointer.text):
            return _zeros(int(shared["distance"] or 0) | ALIGNMENT)
        step = self._step(pointer)
        if step is None:
            return None
        base = self._pointer_zeros(step[0])
        return None if base is None else min(base, self._index_zeros(step[1], step[2]))

    def _index_zeros(self, index: Operand, size: int) -> int:
        return self._zeros_of(index) + _zeros(size)

    def _zeros_of(self, value: Operand) -> int:
        """How often two divides a number. A loop's own number divides by what all others do."""
        if value.integer is not None:
            return _zeros(value.integer)
        if value.text not in self._zeros:
            self._zeros[value.text] = _BITS
            made = self._definitions.get(value.text)
            self._zeros[value.text] = 0 if made is None else self._zeros_of_result(made)
        return self._zeros[value.text]

    def _zeros_of_result(self, made: Instruction) -> int:
        if made.opcode in _AS_IT_WAS:
            return self._zeros_of(made.operands[0])
        if made.opcode in ("mul", "and", "shl", *_SMALLEST_OF_BOTH):
            left, right = (self._zeros_of(operand) for operand in made.operands)
            if made.opcode == "shl":
                return left + (made.operands[1].integer or 0)
            if made.opcode == "mul":
                return left + right
            return max(left, right) if made.opcode == "and" else min(left, right)
        if made.opcode == "phi":
            return min(self._zeros_of(operand) for operand in made.operands)
        if made.opcode == "select":
            return min(self._zeros_of(operand) for operand in made.operands[1:])
        return 0


def _zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else _BITS
