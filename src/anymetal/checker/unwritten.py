"""Which elements of a tensor a launch has not written, from the cells of its buffer."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anymetal.checker import records
from anymetal.checker.program import CheckedProgram
from anymetal.checker.views import BufferView
from anymetal.machine.shadow import Memory
from anymetal.nouns import Field


@dataclass(frozen=True)
class Unwritten:
    """How many of the tensor's elements are missing, and the place of the first of them."""

    missing: int
    elements: int
    first: int
    partial: bool  # some were written


def unwritten(checked: CheckedProgram, checks: records.Checks, view: BufferView) -> Unwritten:
    """What a launch has left out of the tensor of a buffer."""
    size = max(view.element_size, 1)
    padding = _padding(checked, view.index)
    if view.tensor.numel() * size != view.extent or any(padding):
        return _of_strided(checks, view, size, padding)
    missing, first, written = checked.unwritten(checks, view.index or 0)
    cell = 1 << checks.regions[view.index or 0].shift
    count = max(1, missing * cell // size) if missing else 0
    return Unwritten(count, view.extent // size, first * cell // size, bool(written))


def _of_strided(
    checks: records.Checks, view: BufferView, size: int, padding: Sequence[bool]
) -> Unwritten:
    """What lies between the elements of a strided tensor is none of its business, nor is what lies
    between the members of structures in it."""
    written = _written_cells(checks, view.index or 0)
    if any(padding):
        starts = np.arange(len(written)) << checks.regions[view.index or 0].shift
        written |= np.array(padding)[starts % len(padding)]
    places = _places(view.tensor)
    shift = checks.regions[view.index or 0].shift
    done = np.ones(len(places), dtype=bool)
    for byte in range(0, size, 1 << shift):
        done &= written[(places * size + byte) >> shift]
    left = places[~done]
    return Unwritten(len(left), len(places), int(left[0]) if len(left) else 0, bool(done.any()))


def _padding(checked: CheckedProgram, index: int | None) -> list[bool]:
    """For each byte of the structure that a buffer holds, whether it belongs to no member."""
    argument = next((a for a in checked.arguments if a.role == "buffer" and a.index == index), None)
    if argument is None or not argument.fields:
        return []
    padding = np.ones(argument.element_size, dtype=bool)
    _fill(padding, argument.fields, 0)
    return list(padding)


def _fill(padding: Any, fields: tuple[Field, ...], start: int) -> None:
    for field in fields:
        for number in range(math.prod(field.shape)):
            place = start + field.offset + number * field.size
            if field.fields:
                _fill(padding, field.fields, place)
            else:
                padding[place : place + field.size] = False


def _written_cells(checks: records.Checks, number: int) -> Any:
    """For each cell of a region, whether this launch has written it."""
    region = checks.regions[number]
    cells = -(-region.extent >> region.shift)
    words = (ctypes.c_uint64 * (cells * records.CELL_BYTES // 8)).from_address(region.shadow)
    writes = np.frombuffer(words, dtype=np.uint64)[:: records.CELL_BYTES // 8]
    return writes >> np.uint64(32) >= checks.first[Memory.DEVICE]


def _places(tensor: Any) -> Any:
    """Where the elements are, each place once, in the order of memory."""
    places = np.zeros(1, dtype=np.int64)
    for length, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places[:, None] + np.arange(length) * step).reshape(-1)
    return np.unique(places)
