"""The buffers of a model run, and who touched which element when: races are mistakes of ours."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .lanes import LANES, Mask
from .scalars import Array, convert, dtype, element, is_float, width
from .tree import Kernel, Memory

Indices = npt.NDArray[np.int64]
Contents = dict[str, Array]

NOBODY, MANY = -1, -2
"""No thread; threads of more than one simdgroup. Several lanes of simdgroup s are -(s + 10)."""


class ModelError(Exception):
    """The kernel has no defined result: a race, a wild index, a divergent barrier."""


def contents(kernel: Kernel, memory: Memory) -> Contents:
    """What a buffer holds at the start, by field; the only field of what is no struct is ''."""
    struct = kernel.struct(memory.type)
    if struct is not None:
        return {n: _sample(kernel, memory, t, f"{memory.name}.{n}") for n, t in struct.fields}
    if memory.space == "threadgroup":
        start = (np.arange(memory.size) % 13 * 3).astype(dtype(memory.type))
        parts = width(memory.type)
        return {"": start if parts == 1 else np.repeat(start[:, None], parts, axis=1)}
    return {"": _sample(kernel, memory, memory.type, memory.name)}


def _sample(kernel: Kernel, memory: Memory, kind: str, name: str) -> Array:
    rng = np.random.default_rng([kernel.seed, zlib.crc32(name.encode())])
    shape = (memory.size,) if width(kind) == 1 else (memory.size, width(kind))
    if memory.space == "scalar":
        return rng.integers(1, 40, shape).astype(dtype(kind))
    if memory.operator and is_float(kind):  # sums of whole numbers, exact in any order
        return rng.integers(-64, 65, shape).astype(dtype(kind))
    if is_float(kind):
        values = rng.integers(-64, 65, shape) / rng.choice([1, 4, 7], shape)
        return convert(values.astype(np.float32), kind)
    limits = np.iinfo(dtype(kind))
    small = rng.integers(max(limits.min, -20), 100, shape)
    large = rng.integers(limits.min, limits.max, shape, dtype(kind), endpoint=True)
    return np.where(rng.random(shape) < 0.7, small, large).astype(dtype(kind))


@dataclass
class Places:
    """Where the threads stand: one entry a lane, lanes without a thread included."""

    group: Indices
    number: Indices
    group_phase: Indices
    simd_phase: Indices

    @property
    def simd(self) -> Indices:
        return self.number // LANES


class Touch:
    """The last thread to touch each element, and the phase between barriers it did so in."""

    def __init__(self, size: int) -> None:
        self.number = np.full(size, -1, np.int64)
        self.group = np.full(size, -1, np.int64)
        self.group_phase = np.full(size, -1, np.int64)
        self.simd_phase = np.full(size, -1, np.int64)

    def conflicts(self, cells: Indices, places: Places, lanes: Indices) -> Mask:
        """Whether somebody else was here with no barrier since then."""
        number = self.number[cells]
        other = (number != NOBODY) & (number != places.number[lanes])
        passed = (self.group[cells] == places.group[lanes]) & (
            self.group_phase[cells] != places.group_phase[lanes]
        )
        same_simd = _simd_of(number) == places.simd[lanes]
        met = same_simd & (self.simd_phase[cells] != places.simd_phase[lanes])
        return other & ~passed & ~met

    def mark(self, cells: Indices, places: Places, lanes: Indices) -> None:
        number, simd = places.number[lanes], places.simd[lanes]
        before = self.number[cells]
        recent = (before != NOBODY) & (self.group_phase[cells] == places.group_phase[lanes])
        recent &= self.group[cells] == places.group[lanes]
        # Lanes may touch one element at once: the array keeps the last, so compare with that too.
        self.number[cells] = number
        last = self.number[cells]
        several = (last != number) | (recent & (before != number))
        strangers = (_simd_of(last) != simd) | (recent & (_simd_of(before) != simd))
        self.number[cells[several]] = -(simd[several] + 10)
        self.number[cells[strangers]] = MANY
        self.group[cells] = places.group[lanes]
        self.group_phase[cells] = places.group_phase[lanes]
        self.simd_phase[cells] = places.simd_phase[lanes]


def _simd_of(number: Indices) -> Indices:
    return np.where(number >= 0, number // LANES, np.where(number <= -10, -number - 10, number))


class Shared:
    """A device buffer, or a threadgroup array: one after the other for all threadgroups."""

    def __init__(self, kernel: Kernel, memory: Memory, groups: int) -> None:
        self.memory = memory
        self.size = memory.size
        copies = groups if memory.space == "threadgroup" else 1
        start = contents(kernel, memory)
        self.data = {name: np.concatenate([values] * copies) for name, values in start.items()}
        self.tolerance = np.zeros(memory.size) if memory.loose else None
        self.writable = memory.space in ("output", "atomic", "threadgroup")
        self.reads = Touch(memory.size * copies)
        self.writes = Touch(memory.size * copies)

    def cells(self, index: Array, mask: Mask, places: Places) -> tuple[Indices, Indices]:
        """The active lanes, and the element each of them means."""
        lanes = np.flatnonzero(mask)
        wanted = index[lanes].astype(np.int64)
        if ((wanted < 0) | (wanted >= self.size)).any():
            raise ModelError(f"{self.memory.name}: an index outside its {self.size} elements")
        if self.memory.space == "threadgroup":
            wanted = wanted + places.group[lanes] * self.size
        return lanes, wanted

    def load(self, index: Array, mask: Mask, places: Places) -> Contents:
        lanes, cells = self.cells(index, mask, places)
        if self.writable:
            self._refuse(self.writes.conflicts(cells, places, lanes))
            self.reads.mark(cells, places, lanes)
        result = {}
        for name, values in self.data.items():
            result[name] = np.zeros((len(mask), *values.shape[1:]), values.dtype)
            result[name][lanes] = values[cells]
        return result

    def store(self, index: Array, value: Contents, mask: Mask, places: Places) -> None:
        lanes, cells = self.cells(index, mask, places)
        self._refuse(self.reads.conflicts(cells, places, lanes))
        self._refuse(self.writes.conflicts(cells, places, lanes))
        if len(np.unique(cells)) < len(cells):
            raise ModelError(f"{self.memory.name}: two threads write one element")
        self.writes.mark(cells, places, lanes)
        for name, values in self.data.items():
            values[cells] = value[name][lanes]

    def combine(
        self, operator: str, index: Array, value: Array, mask: Mask, places: Places
    ) -> None:
        """An atomic operation. Atomics do not conflict with one another, only with loads."""
        if operator != self.memory.operator and {operator, self.memory.operator} != {"add", "sub"}:
            raise ModelError(f"{self.memory.name}: operations that do not commute")
        lanes, cells = self.cells(index, mask, places)
        self._refuse(self.reads.conflicts(cells, places, lanes))
        self.writes.mark(cells, places, lanes)
        # Even a single thread's own order must not matter to another one.
        with np.errstate(all="ignore"):
            getattr(np, _UFUNCS[operator]).at(self.data[""], cells, value[lanes])

    def _refuse(self, conflicts: Mask) -> None:
        if conflicts.any():
            raise ModelError(f"{self.memory.name}: a race")


_UFUNCS = {
    "add": "add",
    "sub": "subtract",
    "min": "minimum",
    "max": "maximum",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}


class Private:
    """A private array: one row a lane."""

    def __init__(self, values: list[Array]) -> None:
        self.size = len(values)
        self.data = np.stack(values, axis=1)

    def _index(self, index: Array, mask: Mask) -> tuple[Indices, Indices]:
        lanes = np.flatnonzero(mask)
        wanted = index[lanes].astype(np.int64)
        if ((wanted < 0) | (wanted >= self.size)).any():
            raise ModelError(f"an index outside a private array of {self.size} elements")
        return lanes, wanted

    def load(self, index: Array, mask: Mask) -> Array:
        lanes, cells = self._index(index, mask)
        result = np.zeros((len(mask), *self.data.shape[2:]), self.data.dtype)
        result[lanes] = self.data[lanes, cells]
        return result

    def store(self, index: Array, value: Array, mask: Mask) -> None:
        lanes, cells = self._index(index, mask)
        self.data[lanes, cells] = value[lanes]


def numpy_type(kernel: Kernel, memory: Memory) -> np.dtype[np.generic]:
    """The layout of one element in memory, as the kernel's compiler sees it."""
    struct = kernel.struct(memory.type)
    if struct is not None:
        fields = [(name, layout(kind)) for name, kind in struct.fields]
        return np.dtype(fields, align=True)
    return layout(memory.type)


def layout(kind: str) -> np.dtype[np.generic]:
    return np.dtype((dtype(element(kind)), (width(kind),))) if width(kind) > 1 else dtype(kind)
