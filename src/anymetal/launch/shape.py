"""The shape of a launch: a grid and a threadgroup in three dimensions. Group sizes are judged here.

Whatever gives a group size (a call, a policy file, a tuned value) asks `group_size_fault`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import index as as_index
from typing import Any, TypeAlias

from anymetal.engines.contract import Sizes
from anymetal.errors import LimitError
from anymetal.nouns import MAX_GROUP_SIZE, SIMDGROUP

Extent: TypeAlias = "int | Sequence[int]"

_UINT32_MAX = (1 << 32) - 1


def group_size_fault(
    group_size: Any, *, limit: int = MAX_GROUP_SIZE, whole_simdgroups: bool = False
) -> str | None:
    """What is wrong with a group size, or None. `limit` is the kernel's own; `whole_simdgroups`
    holds for kernels whose lanes exchange values."""
    threads = 1
    for size in group_size if isinstance(group_size, list | tuple) else (group_size,):
        if type(size) is not int:
            return f"group_size is {group_size!r}; expected an int or a sequence of ints"
        threads *= size
    if not 1 <= threads <= limit:
        return f"{_in_words(group_size, threads)}; a threadgroup has 1 to {limit}"
    if whole_simdgroups and threads % SIMDGROUP:
        return (
            f"{_in_words(group_size, threads)}; simdgroup functions are used, so it must be a"
            f" multiple of {SIMDGROUP}"
        )
    return None


def _in_words(group_size: Extent, threads: int) -> str:
    shape = "" if isinstance(group_size, int) else f"{group_size!r}, "
    return f"group_size is {shape}{threads} threads"


def grid_and_group(
    kernel: str, threads: Extent | None, group_size: Extent | None, limit: int
) -> tuple[Sizes, Sizes]:
    """The grid and the threadgroup of a call, checked as torch does."""
    if threads is None:
        raise RuntimeError(
            f"{kernel}: Number of threads is undefined or has wrong dimension: pass threads=, or a"
            " tensor whose size it can be"
        )
    grid, dimensions = _extent(kernel, threads, "threads")
    if group_size is None:
        return grid, (min(grid[0], limit) if dimensions == 1 else limit, 1, 1)
    group, group_dimensions = _extent(kernel, group_size, "group_size")
    if group_dimensions != dimensions:
        raise RuntimeError(
            f"{kernel}: threads {threads!r} and group_size {group_size!r} must have the same number"
            " of dimensions"
        )
    if not 1 <= group[0] * group[1] * group[2] <= limit:
        raise _refused(kernel, group_size, group, limit)
    return grid, group


def _refused(kernel: str, group_size: Extent, group: Sizes, limit: int) -> ValueError:
    if 0 in group:
        return ValueError(f"{kernel}: group_size {group_size!r} has no threads")
    fault = group_size_fault(group, limit=limit)
    return LimitError(f"{kernel}: Threadgroup size exceeds {limit} limit: {fault}")


def _extent(kernel: str, value: Extent, name: str) -> tuple[Sizes, int]:
    """Three sizes, and how many of them the caller gave."""
    sizes: tuple[int, ...]
    if type(value) is int:
        if 0 <= value <= _UINT32_MAX:
            return (value, 1, 1), 1
        sizes = (value,)
    elif type(value) is tuple and len(value) == 1 and type(value[0]) is int:
        sizes = value
        if 0 <= value[0] <= _UINT32_MAX:
            return (value[0], 1, 1), 1
    else:
        try:
            if isinstance(value, bytes | Mapping):
                raise TypeError(value)
            sizes = tuple(as_index(size) for size in _as_sequence(value))
        except TypeError:
            raise RuntimeError(
                f"{kernel}: {name} is {value!r}; pass an int or a sequence of 1 to 3 ints"
            ) from None
    count = len(sizes)
    if not 1 <= count <= 3:
        raise RuntimeError(
            f"{kernel}: Number of {name} is undefined or has wrong dimension: {value!r} has"
            f" {count} dimensions, expected 1 to 3"
        )
    for size in sizes:
        if not 0 <= size <= _UINT32_MAX:
            raise ValueError(f"{kernel}: {name} is {value!r}; each must be from 0 to 2**32 - 1")
    if math.prod(sizes) >= 1 << 64:
        raise ValueError(f"{kernel}: {name} is {value!r}; a grid has fewer than 2**64 threads")
    x, y, z = (*sizes, 1, 1)[:3]
    return (x, y, z), count


def _as_sequence(value: Any) -> Sequence[Any]:
    return (value,) if hasattr(value, "__index__") and not hasattr(value, "__len__") else value
