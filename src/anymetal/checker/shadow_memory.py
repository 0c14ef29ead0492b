"""Shadow cells for the buffers of a launch: overlapping tensors share theirs.

Cells of earlier launches need no clearing, because epochs only grow: one arena serves all launches.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anymetal.checker.records import CELL_BYTES

# Epochs are 32 bits wide; the arena starts anew long before they run out.
_LAST_EPOCH = 1 << 31


@dataclass(frozen=True)
class Need:
    """Bytes that need cells, and the smallest element touched in them."""

    low: int
    size: int
    element: int


@dataclass(frozen=True)
class Cells:
    """Where the cells of a Need start, and how many bytes each stands for, as a power of two."""

    address: int
    shift: int


class Sink:
    """Where wrong accesses go: as many bytes as the largest one of a launch has."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1 << 16)

    def address(self, size: int) -> int:
        if len(self._memory) < size:
            self._memory = mmap.mmap(-1, size)
        return int(np.frombuffer(self._memory, dtype=np.uint8).ctypes.data)


class Arena:
    """Memory for cells, and the clock they are dated by."""

    def __init__(self) -> None:
        self._cells = np.zeros(0, dtype=np.uint64)
        self.epoch = 1

    def lay_out(self, needs: Sequence[Need]) -> list[Cells]:
        """Cells for each need, in the order given."""
        groups = _overlapping(needs)
        total = sum(_cell_count(low, high, element) for low, high, element, _ in groups)
        self._reserve(total)
        placed: dict[int, Cells] = {}
        address = int(self._cells.ctypes.data)
        for low, high, element, members in groups:
            shift = element.bit_length() - 1
            for member in members:
                start = (needs[member].low - low) >> shift
                placed[member] = Cells(address + start * CELL_BYTES, shift)
            address += _cell_count(low, high, element) * CELL_BYTES
        return [placed[i] for i in range(len(needs))]

    def _reserve(self, cells: int) -> None:
        words = cells * CELL_BYTES // 8
        if self.epoch > _LAST_EPOCH:
            self._cells, self.epoch = np.zeros(0, dtype=np.uint64), 1
        if len(self._cells) < words:
            self._cells = np.zeros(max(words, 1 << 16), dtype=np.uint64)


def _cell_count(low: int, high: int, element: int) -> int:
    return -(-(high - low) // element)


def _overlapping(needs: Sequence[Need]) -> list[tuple[int, int, int, list[int]]]:
    """Needs merged where their bytes overlap: low, high, element and the needs in each."""
    groups: list[tuple[int, int, int, list[int]]] = []
    for number in sorted(range(len(needs)), key=lambda i: needs[i].low):
        need = needs[number]
        low, high, element = need.low, need.low + need.size, need.element
        if groups and low < groups[-1][1]:
            before = groups[-1]
            members = [*before[3], number]
            smallest = min(before[2], element)
            if (low - before[0]) % smallest:
                smallest = 1
            groups[-1] = (before[0], max(before[1], high), smallest, members)
        else:
            groups.append((low, high, element, [number]))
    return groups
