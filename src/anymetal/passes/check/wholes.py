"""Loads, or stores, of the parts of one vector: checked as the one access that they are.

To LLVM a vector of Metal's is a structure, which is copied part by part. One check for all of them
costs less than one for each, and leaves it to LLVM to make one access of them in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from anymetal.ir import Block, Function, Instruction, i64
from anymetal.machine.shadow import LARGEST_CELL
from anymetal.passes.accesses import Access, accesses_of
from anymetal.passes.provenance import UNKNOWN, Provenance, Root, constant_step

_ORIGINS = ("buffer", "static", "dynamic")


def unit(access: Access) -> int:
    """The largest power of two whose multiples an access starts and ends at, as far as it says."""
    size = access.size.integer or access.element
    return max(access.element, min(size & -size, access.align))


@dataclass(frozen=True)
class _Part:
    """A load or store, and how far it is from the pointer that it was worked out from."""

    instruction: Instruction
    access: Access
    base: str
    offset: int

    @property
    def end(self) -> int:
        return self.offset + (self.access.size.integer or 0)

    def precedes(self, other: _Part) -> bool:
        """Whether the other goes on where this one ends, in the same expression."""
        one, two = self.instruction, other.instruction
        place = one.metadata.get("dbg")
        is_next = self.base == other.base and self.end == other.offset
        is_same = place is not None and place == two.metadata.get("dbg")
        return is_next and is_same and one.opcode == two.opcode


@dataclass(frozen=True)
class Whole:
    """The access that some parts are together: the first part, and the distance of each by id."""

    first: Instruction
    access: Access
    distances: dict[int, int]


class Wholes:
    """The vectors that a function loads and stores.

    Memory with cells must be accessed in equal vectors only, so that its cells can be as large.
    `may_join` says of a load or store whether nothing is lost if it is not checked by itself.
    """

    def __init__(
        self,
        function: Function,
        provenance: Provenance,
        without_cells: Collection[Root],
        may_join: Callable[[Instruction], bool],
    ) -> None:
        self._function = function
        self._provenance = provenance
        self._definitions = function.definitions()
        self._may_join = may_join
        self._by_part: dict[int, Whole] = {}
        for block in function.blocks:
            for run in self._runs(block):
                for whole in _split(run):
                    self._by_part |= dict.fromkeys(whole.distances, whole)
        units = self._units() if self._by_part else {}
        self._by_part = {
            part: whole
            for part, whole in self._by_part.items()
            for root in (provenance.root(whole.access.pointer),)
            if root in without_cells
            or (UNKNOWN not in units and units[root] >= (whole.access.size.integer or 0))
        }

    def of(self, instruction: Instruction) -> Whole | None:
        """What a load or store is a part of, if anything."""
        return self._by_part.get(id(instruction))

    def _units(self) -> dict[Root, int]:
        """What all accesses to a memory start and end at multiples of."""
        units: dict[Root, int] = {}
        for instruction in self._function.instructions():
            for access in accesses_of(instruction):
                whole = self.of(instruction)
                root = self._provenance.root(access.pointer)
                own = unit(whole.access if whole else access)
                units[root] = min(units.get(root, LARGEST_CELL), own)
        return units

    def _runs(self, block: Block) -> Iterator[list[_Part]]:
        """Parts that follow each other, with nothing between them that touches memory."""
        run: list[_Part] = []
        for instruction in block.instructions:
            if instruction.opcode not in ("load", "store", "call"):
                continue
            part = self._part(instruction) if instruction.opcode != "call" else None
            if run and part and run[-1].precedes(part):
                run.append(part)
                continue
            yield run
            run = [part] if part else []
        yield run

    def _part(self, instruction: Instruction) -> _Part | None:
        (access,) = accesses_of(instruction)
        is_plain = not instruction.is_atomic and not instruction.is_volatile
        root = self._provenance.root(access.pointer)
        if root.origin not in _ORIGINS or not is_plain or not self._may_join(instruction):
            return None
        made = self._definitions.get(access.pointer.text)
        step = constant_step(made) if made and made.opcode == "getelementptr" else None
        if made is None or step is None:
            return _Part(instruction, access, access.pointer.text, 0)
        return _Part(instruction, access, made.pointer.text, step)


def _split(run: list[_Part]) -> Iterator[Whole]:
    """Vectors of a run, each as large and as far aligned as a cell can be."""
    while len(run) > 1:
        count = next((n for n in range(len(run), 1, -1) if _is_whole(run[:n])), 1)
        if count > 1:
            first, size = run[0], run[count - 1].end - run[0].offset
            distances = {id(part.instruction): part.offset - first.offset for part in run[:count]}
            access = replace(first.access, size=i64(size))
            yield Whole(first.instruction, access, distances)
        run = run[count:]


def _is_whole(parts: list[_Part]) -> bool:
    size = parts[-1].end - parts[0].offset
    return size & (size - 1) == 0 and size <= min(LARGEST_CELL, parts[0].access.align)
