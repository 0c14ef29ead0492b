"""Which strided loads or stores of a block cover one contiguous stretch of memory together.

A thread that reads a float4 reads four floats with a stride of 16 bytes between threads. Each load
alone is a gather; all four are one contiguous load and a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from anymetal.ir import Instruction, Type
from anymetal.passes.count.observe import OBSERVE
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.rules import MEMORY_INTRINSICS
from anymetal.passes.simdgroup.values import Value

WIDEST_BYTES = 1024
# Several runs are worth loading one by one if there are few: the rows of an 8x8 matrix, say.
SHORTEST_RUN = 4
RUNS = (2, 4, 8)
T = TypeVar("T")
Peek = Callable[[Instruction], Value | None]
Place = Callable[[Instruction], tuple[str, int]]


@dataclass(frozen=True)
class Stretch:
    """Contiguous runs of elements, all of one length, and which element each lane takes.

    Elements are numbered through, run after run.
    """

    starts: tuple[int, ...]
    length: int
    taken: tuple[tuple[int, ...], ...]  # an element for each access and lane

    @property
    def count(self) -> int:
        return len(self.starts) * self.length

    @property
    def owners(self) -> list[tuple[int, int]] | None:
        """The access and lane of each element; None where several lanes take one."""
        owner = {
            element: (number, lane)
            for number, elements in enumerate(self.taken)
            for lane, element in enumerate(elements)
        }
        lanes = sum(len(elements) for elements in self.taken)
        return [owner[element] for element in range(self.count)] if len(owner) == lanes else None

    def in_order(self, of: Sequence[T]) -> list[T]:
        """What belongs to each access, by the element that the first lane takes."""
        numbers = sorted(range(len(self.taken)), key=lambda number: self.taken[number][0])
        return [of[number] for number in numbers]

    @property
    def is_in_turn(self) -> bool:
        """Whether each lane takes neighbours, and the next lane those that follow."""
        count, in_order = len(self.taken), self.in_order(self.taken)
        return len(self.starts) == 1 and all(
            elements == tuple(range(number, count * WIDTH, count))
            for number, elements in enumerate(in_order)
        )


def stretch_of(accesses: Sequence[tuple[int, ...]], size: int) -> Stretch | None:
    """The memory that accesses (an offset for each lane) cover: one run, or a few of one length."""
    places = sorted({offset for offsets in accesses for offset in offsets})
    if len(places) * size > WIDEST_BYTES:
        return None
    starts = [
        place
        for before, place in zip([None, *places], places, strict=False)
        if before is None or place != before + size
    ]
    length, rest = divmod(len(places), len(starts))
    if rest or (len(starts) > 1 and (length < SHORTEST_RUN or len(starts) not in RUNS)):
        return None
    number = {place: index for index, place in enumerate(places)}
    for run, start in enumerate(starts):
        if number[start] != run * length:
            return None
    taken = tuple(tuple(number[offset] for offset in offsets) for offsets in accesses)
    return Stretch(tuple(starts), length, taken)


def is_invariant(load: Instruction) -> bool:
    """Whether a load gives the same whenever it runs."""
    return "invariant.load" in load.metadata


def touches_memory(instruction: Instruction) -> bool:
    """Whether an instruction may write memory, or must not be reordered with accesses."""
    if instruction.opcode in ("store", "atomicrmw", "cmpxchg", "fence"):
        return True
    if instruction.opcode == "load":
        return instruction.is_atomic or instruction.is_volatile
    if instruction.opcode != "call":
        return False
    callee = instruction.callee or ""
    if callee.startswith(OBSERVE):
        return False
    return not callee.startswith("llvm.") or callee.startswith(MEMORY_INTRINSICS)


class Accesses:
    """What a block does with memory, in order: all that a search for partners looks at."""

    def __init__(self, block: Sequence[Instruction]) -> None:
        found = [one for one in block if one.opcode in ("load", "store") or touches_memory(one)]
        self._found = [(one, touches_memory(one)) for one in found]
        self._numbers = {id(one): number for number, one in enumerate(found)}

    def number(self, access: Instruction) -> int:
        return self._numbers[id(access)]

    def behind(self, first: Instruction) -> Iterator[tuple[Instruction, bool]]:
        """What follows an access, and whether it touches memory."""
        for number in range(self.number(first) + 1, len(self._found)):
            yield self._found[number]


def loads_together(
    accesses: Accesses, first: Instruction, address: Value, size: int, peek: Peek, *, distinct: bool
) -> list[Instruction] | None:
    """The loads from `first` on that cover a stretch with it; each one's address is known now.

    `distinct`: no element may belong to several lanes, because some may be masked off.
    """
    members, offsets = [first], [address.facts.offsets]
    judged = 0  # how many members there were when they were last looked at
    for instruction, touches in accesses.behind(first):
        if touches:
            return None
        if instruction.opcode == "load" and instruction.type == first.type:
            _join(instruction, peek(instruction), address, members, offsets)
            if len(members) > judged and _is_stretch(offsets, size, distinct):
                return members
            judged = len(members)
        if len(members) * size * WIDTH >= WIDEST_BYTES:
            return None
    return None


def stores_together(
    accesses: Accesses, first: Instruction, address: Value, size: int, peek: Peek, *, distinct: bool
) -> list[Instruction] | None:
    """Likewise for stores; nothing between them looks at memory that may be theirs."""
    members, offsets = [first], [address.facts.offsets]
    kind = first.operands[0].type
    for instruction, touches in accesses.behind(first):
        if (
            instruction.opcode == "store"
            and instruction.operands[0].type == kind
            and not instruction.is_atomic
        ):
            count = len(members)
            _join(instruction, peek(instruction), address, members, offsets)
            if len(members) == count:
                return None
            if _is_stretch(offsets, size, distinct):
                return members
        elif touches or (instruction.opcode == "load" and not is_invariant(instruction)):
            return None
        if len(members) * size * WIDTH >= WIDEST_BYTES:
            return None
    return None


def _is_stretch(offsets: Sequence[tuple[int, ...] | None], size: int, distinct: bool) -> bool:
    stretch = stretch_of([one for one in offsets if one], size)
    return stretch is not None and not (distinct and stretch.owners is None)


def neighbours(
    accesses: Accesses,
    start: Instruction,
    size: int,
    place: Place,
    is_taken: Callable[[Instruction], bool],
) -> list[Instruction] | None:
    """Loads, or stores, from `start` on of elements that are neighbours in memory, in that order:
    8 or 16 bytes of each lane, at an address that nothing is known of.

    `place`: the pointer that an access starts from, and how many bytes behind it. `is_taken`: it is
    written with others already.
    """
    root, lowest = place(start)
    found = {lowest: start}
    kind = _kind(start)
    for instruction, touches in accesses.behind(start):
        is_alike = instruction.opcode == start.opcode and _kind(instruction) == kind
        if is_alike and not is_taken(instruction):
            other, distance = place(instruction)
            if other == root and not instruction.is_atomic and not instruction.is_volatile:
                if distance in found:
                    break
                found[distance] = instruction
                continue
        if touches:
            break
        if start.opcode == "store" and instruction.opcode == "load":
            break
    for count in (4, 2):
        distances = [lowest + number * size for number in range(count)]
        if size * count in (8, 16) and all(distance in found for distance in distances):
            return [found[distance] for distance in distances]
    return None


def _kind(access: Instruction) -> Type:
    return access.type if access.opcode == "load" else access.operands[0].type


def _join(
    instruction: Instruction,
    other: Value | None,
    address: Value,
    members: list[Instruction],
    offsets: list[tuple[int, ...] | None],
) -> None:
    if other is None or not other.facts.is_pattern:
        return
    if other.base == address.base and other.condition == address.condition:
        members.append(instruction)
        offsets.append(other.facts.offsets)
