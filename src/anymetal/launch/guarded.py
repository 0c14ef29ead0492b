"""A kernel of the library goes in; out comes the same kernel behind the checks of every launch.

Here is also where a launch can be watched: `counted` runs the kernels inside a block with counters,
which is how the benchmarks know the memory traffic of an operator.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.engines.counted import Counts
from anymetal.errors import LimitError
from anymetal.launch.shape import group_size_fault
from anymetal.nouns import MAX_GROUP_SIZE


@dataclass(frozen=True)
class Launched:
    """One launch: the kernel, its shape, and what its threads did where they were counted."""

    kernel: str
    threads: Any
    group_size: Any
    counts: Counts | None
    moved_bytes: int | None  # of its tensors; None where they were not counted
    arguments: str = ""  # numbers as they are, tensors by their shapes

    @property
    def way(self) -> tuple[str, str, str, str]:
        """What two launches that do the same work in the same way have in common."""
        return self.kernel, str(self.threads), str(self.group_size), self.arguments


class Watch:
    """The launches of a block, in order."""

    def __init__(self, counting: bool) -> None:
        self.counting = counting
        self.launches: list[Launched] = []


_watches: list[Watch] = []
_Tensor = torch.Tensor

INDEX_LIMIT = 2**31  # kernels count the elements of a tensor with 32 bits

# Parameters that only a kernel with simdgroup functions has.
_SIMDGROUP_BUILTINS = frozenset(
    (
        "thread_index_in_simdgroup",
        "simdgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "threads_per_simdgroup",
    )
)

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
        self._judged: Any = None  # the last group size that was fine, where it cannot change

    def __call__(self, *args: Any, **keywords: Any) -> None:
        self._check(args, keywords.get("group_size"))
        if _watches:
            self._watched(args, keywords)
        else:
            self._kernel(*args, **keywords)

    def in_turn(self, launches: Sequence[tuple[tuple[Any, ...], Any]], group_size: int) -> None:
        """Launches with these arguments and threads, one after the other."""
        in_turn = getattr(self._kernel, "in_turn", None)
        if in_turn is None or _watches:
            for args, threads in launches:
                self(*args, threads=threads, group_size=group_size)
            return
        for args, _ in launches:
            self._check(args, group_size)
        in_turn(launches, group_size)

    def _check(self, args: tuple[Any, ...], group_size: Any) -> None:
        for argument in args:
            if isinstance(argument, _Tensor) and argument.numel() >= INDEX_LIMIT:
                check_index_range(self.name, *(a for a in args if isinstance(a, _Tensor)))
        if group_size is self._judged or group_size is None:
            return
        fault = group_size_fault(group_size, limit=self._limit, whole_simdgroups=self._collectives)
        if fault is not None:
            raise LimitError(f"{self.name}: {fault}. Choose another in a policy file")
        if not isinstance(group_size, list):
            self._judged = group_size

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
        launched = Launched(self.name, *shape, counts, _moved(args, counts), _told(args))
        for watch in _watches:
            watch.launches.append(launched)


def _told(args: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{one.dtype}{list(one.shape)}" if isinstance(one, torch.Tensor) else str(one)
        for one in args
    )


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


def check_index_range(kernel: str, *tensors: torch.Tensor) -> None:
    """Tensors whose elements a kernel can count with 32 bits."""
    for position, tensor in enumerate(tensors):
        if tensor.numel() >= INDEX_LIMIT:
            raise ValueError(
                f"{kernel}: argument {position} of shape {tuple(tensor.shape)} has"
                f" {tensor.numel()} elements, but kernels count with 32 bits: at most"
                f" {INDEX_LIMIT - 1}. Split it along a leading dimension"
            )


def uses_simdgroups(kernel: Callable[..., None]) -> bool:
    """Whether a kernel asks for its place in a simdgroup; torch's own kernels do not tell."""
    arguments = getattr(kernel, "arguments", ())
    return any(argument.builtin in _SIMDGROUP_BUILTINS for argument in arguments)
