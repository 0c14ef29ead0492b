"""A kernel of the library goes in; out comes the same kernel behind the checks of every launch.

Here is also where a launch can be watched: `counted` runs the kernels inside a block with counters,
which is how the benchmarks know the memory traffic of an operator.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.engines.counted import Counts
from anymetal.launch.validate import (
    INDEX_LIMIT,
    check_group,
    check_index_range,
    uses_simdgroups,
)
from anymetal.nouns import MAX_GROUP_SIZE


@dataclass(frozen=True)
class Launched:
    """One launch: the kernel, its shape, and what its threads did where they were counted."""

    kernel: str
    threads: Any
    group_size: Any
    counts: Counts | None
    moved_bytes: int | None  # of its tensors; None where they were not counted


class Watch:
    """The launches of a block, in order."""

    def __init__(self, counting: bool) -> None:
        self.counting = counting
        self.launches: list[Launched] = []


_watches: list[Watch] = []

# What is surely kept in a GPU's or a processor's cache while a kernel runs.
CACHED_BYTES = 256 * 1024


@contextlib.contextmanager
def watched(*, counting: bool = False) -> Iterator[list[Launched]]:
    """The launches made inside the block, by any thread.

    With `counting`, kernels run on one processor and their memory accesses are counted, where the
    engine can count (the CPU engine can, a GPU cannot).
    """
    watch = Watch(counting)
    _watches.append(watch)
    try:
        yield watch.launches
    finally:
        _watches.remove(watch)


class GuardedKernel:
    """A kernel that checks its group size and the index range of its tensors before it runs."""

    def __init__(self, kernel: Callable[..., None], name: str) -> None:
        self.name = name
        self._kernel = kernel
        limit = int(getattr(kernel, "max_threads_per_threadgroup", MAX_GROUP_SIZE))
        self._limit = min(limit, MAX_GROUP_SIZE)
        self._collectives = uses_simdgroups(kernel)

    def __call__(self, *args: Any, **keywords: Any) -> None:
        for argument in args:
            if isinstance(argument, torch.Tensor) and argument.numel() >= INDEX_LIMIT:
                check_index_range(self.name, *(a for a in args if isinstance(a, torch.Tensor)))
        group_size = keywords.get("group_size")
        if group_size is not None:
            check_group(self.name, group_size, limit=self._limit, collectives=self._collectives)
        if _watches:
            self._watched(args, keywords)
        else:
            self._kernel(*args, **keywords)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._kernel, attribute)

    def _watched(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        counts = None
        count = getattr(self._kernel, "count", None)
        if count is not None and any(watch.counting for watch in _watches):
            counts = count(*args, **keywords)
        else:
            self._kernel(*args, **keywords)
        shape = (keywords.get("threads"), keywords.get("group_size"))
        for watch in _watches:
            watch.launches.append(Launched(self.name, *shape, counts, _moved(args, counts)))


def _bytes(tensor: torch.Tensor) -> int:
    """The memory of a tensor; dimensions that are only repeated take none."""
    kept = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(kept) * tensor.element_size()


def _moved(args: tuple[Any, ...], counts: Counts | None) -> int | None:
    """Bytes of tensors that a launch asks for.

    Numbers do not count, and a tensor that all rows share, such as a weight, counts once: it is
    smaller than the largest one and small enough to stay in a cache.
    """
    if counts is None:
        return None
    sizes = {i: _bytes(a) for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.dim()}
    largest = max(sizes.values(), default=0)
    total = counts.buffer_bytes.get(-1, 0)
    for index, size in sizes.items():
        asked = counts.buffer_bytes.get(index, 0)
        shared = size < largest and size <= CACHED_BYTES
        total += min(asked, size) if shared else asked
    return total
