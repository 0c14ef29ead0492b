"""Stores past the caches: of results that are larger than them, and that the kernel reads nowhere.

A store to a line that is in no cache reads the line first; one that fills whole lines and goes past
the caches does not. Norms over rows, which read as much as they write, take about 0.7 of the time.
Such stores wait for no others: the runtime lets them finish before a launch is over, and kernels
that speak with other threadgroups, by atomics or fences, have none.
"""

from __future__ import annotations

from anymetal.ir import I32, I64, OWN_METADATA, Instruction, Operand, i64
from anymetal.machine import processor
from anymetal.machine.layout import Group
from anymetal.machine.table import offset_of
from anymetal.passes.lower.machine import STOP, TAKEN
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.positions import GROUP_POINTER
from anymetal.passes.simdgroup.values import INVARIANT, Code

NONTEMPORAL = {"nontemporal": f"{OWN_METADATA}1"}
NONTEMPORAL_CONTENTS = "i32 1"
LINE = 64  # bytes
_LARGE = 32 << 20  # bytes: the third cache of a server's processor, or more
_SHORT = 128 << 10  # bytes: a row of which the next one can be fetched early
_GROUPS = offset_of(Group, "groups")
_SHARED = ("atomicrmw", "cmpxchg", "fence")


class Streaming:
    """Which stores of a kernel may go past the caches, and when they do."""

    def __init__(self, code: Code, kernel: Kernel) -> None:
        self._code = code
        self._kernel = kernel
        instructions = [i for block in kernel.blocks.values() for i in block]
        self._is_alone = processor.is_x86() and not any(map(_is_shared, instructions))
        self._read = {self.buffer(i.pointer) for i in instructions if i.opcode == "load"}

    def is_possible(self, store: Instruction) -> bool:
        """Whether a store of all lanes side by side fills lines of a buffer that is not read."""
        size = WIDTH * self._code.types.size(store.operands[0].type)
        if not self._is_alone or size % LINE:
            return False
        buffer = self.buffer(store.pointer)
        return buffer is not None and not {None, buffer} & self._read

    def is_large(self, length: Operand, size: int) -> Operand:
        """Whether rows of a length, one for each threadgroup, are more than caches hold."""
        code = self._code
        groups = [
            code.load(I32, code.moved(GROUP_POINTER, _GROUPS + 4 * axis), metadata=INVARIANT)
            for axis in range(3)
        ]
        total = code.mul(self._wide(length), i64(size))
        for count in groups:
            total = code.mul(total, self._wide(count))
        return code.icmp("uge", total, i64(_LARGE))

    def bytes_to_next(self, length: Operand, size: int) -> Operand:
        """How far a row is from the next, if that fits into the second cache beside it; else 0."""
        code = self._code
        distance = code.mul(self._wide(length), i64(size))
        is_short = code.icmp("ule", distance, i64(_SHORT))
        return code.select(is_short, distance, i64(0))

    def _wide(self, number: Operand) -> Operand:
        return number if number.type is I64 else self._code.cast("zext", number, I64)

    def buffer(self, pointer: Operand) -> str | None:
        """Which memory an address is in, by the place among the arguments, or in the machine, where
        its address is; None of what nobody knows."""
        name = pointer.text
        while True:
            _, made = self._kernel.definitions.get(name, ("", None))
            if made is None or made.opcode == "alloca":
                return name
            if made.opcode == "load":
                return self._listed(made.pointer)
            if made.opcode != "getelementptr":
                return None
            name = made.pointer.text

    def _listed(self, place: Operand) -> str | None:
        """A pointer from a list of pointers: the list, and the bytes in it."""
        _, step = self._kernel.definitions.get(place.text, ("", None))
        start, distance = place, 0
        if step is not None and step.opcode == "getelementptr" and len(step.operands) == 2:
            assert step.element is not None
            number = step.operands[1].integer
            if number is None:
                return None
            start, distance = step.pointer, number * self._kernel.types.size(step.element)
        if start.text in self._kernel.definitions:
            around = self.buffer(start)
            is_machine = around is not None and around.startswith(self._kernel.self.text)
            return f"{around}+{distance}" if is_machine else None
        return f"{start.text}+{distance}"


def _is_shared(instruction: Instruction) -> bool:
    """Whether an instruction may order memory for other threadgroups, or hide an access."""
    if instruction.opcode in _SHARED or instruction.is_atomic or instruction.is_volatile:
        return True
    callee = instruction.callee or ""
    is_known = callee in (STOP, TAKEN) or callee.startswith("llvm.")
    return instruction.opcode == "call" and (not is_known or callee.startswith("llvm.mem"))


def is_aligned(code: Code, place: Operand) -> Operand:
    """Whether a line begins at a place."""
    low = code.and_(code.cast("ptrtoint", place, I64), i64(LINE - 1))
    return code.icmp("eq", low, i64(0))
