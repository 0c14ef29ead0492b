"""Which kernels a block of code asks for, and how it launches them: calls go in, nothing runs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from anymetal.engines.compiler import AnyCompiler
from anymetal.engines.contract import Sizes
from anymetal.launch import shader
from anymetal.launch.kernel import Kernel
from anymetal.launch.shape import Extent, grid_and_group
from anymetal.nouns import MAX_GROUP_SIZE, Argument, ConstantValue, Source

Request = tuple[Source, str, dict[str, ConstantValue]]


class Requests(list[Request]):
    """Each kernel once, and the threadgroups it was launched with."""

    def __init__(self) -> None:
        super().__init__()
        self.policies: dict[str, dict[str, object]] = {}  # that decided which ones they are
        self._launches: dict[str, set[tuple[Sizes, bool]]] = defaultdict(set)

    def add(self, request: Request) -> set[tuple[Sizes, bool]]:
        """Where launches of a kernel are noted down."""
        if repr(request) not in self._launches:
            self.append(request)
        return self._launches[repr(request)]

    def launches(
        self, source: Source, kernel: str, constants: Mapping[str, ConstantValue]
    ) -> frozenset[tuple[Sizes, bool]]:
        """Sizes of threadgroups, and whether the grid's edges cut some."""
        return frozenset(self._launches[repr((source, kernel, dict(constants)))])


class RequestedKernel(Kernel):
    """A kernel whose calls are noted; it is compiled for the CPU, and they run there."""

    def __init__(
        self,
        name: str,
        constants: Mapping[str, ConstantValue],
        compiler: AnyCompiler,
        launches: set[tuple[Sizes, bool]],
    ) -> None:
        super().__init__(name, constants, compiler)
        self._launches = launches

    def __call__(
        self,
        *args: Any,
        threads: Extent | None = None,
        group_size: Extent | None = None,
        **keywords: Any,
    ) -> None:
        _note(self, self._launches, args, threads, group_size)
        super().__call__(*args, threads=threads, group_size=group_size, **keywords)

    def in_turn(self, launches: Sequence[tuple[tuple[Any, ...], Extent]], group_size: int) -> None:
        for args, threads in launches:
            self(*args, threads=threads, group_size=group_size)


class NamedKernel(RequestedKernel):
    """A kernel by name alone: calls are noted and do nothing."""

    arguments: tuple[Argument, ...] = ()
    max_threads_per_threadgroup = MAX_GROUP_SIZE

    def __init__(
        self,
        name: str,
        constants: Mapping[str, ConstantValue],
        compiler: AnyCompiler,
        launches: set[tuple[Sizes, bool]],
    ) -> None:
        self.name = name
        self.constants = dict(constants)
        self._launches = launches

    def __call__(
        self,
        *args: Any,
        threads: Extent | None = None,
        group_size: Extent | None = None,
        **keywords: Any,
    ) -> None:
        _note(self, self._launches, args, threads, group_size)


def _note(
    kernel: Kernel,
    launches: set[tuple[Sizes, bool]],
    args: tuple[Any, ...],
    threads: Extent | None,
    group_size: Extent | None,
) -> None:
    if threads is None:
        threads = next((one.numel() for one in args if isinstance(one, torch.Tensor)), None)
    limit = kernel.max_threads_per_threadgroup
    grid, group = grid_and_group(kernel.name, threads, group_size, limit)
    if all(grid):
        ragged = any(count % size for count, size in zip(grid, group, strict=True))
        launches.add((group, ragged))


@contextlib.contextmanager
def requests(found: Requests | None = None, *, run: bool = False) -> Iterator[Requests]:
    """The kernels that libraries are asked for inside the block, added to `found`.

    Without `run` calls do nothing, and results are not filled in. A library that is kept beyond the
    block has such kernels for good.
    """
    every = Requests() if found is None else found
    kind = RequestedKernel if run else NamedKernel

    def make(name: str, constants: Mapping[str, ConstantValue], compiler: AnyCompiler) -> Kernel:
        launches = every.add((compiler.source, name, dict(constants)))
        return kind(name, constants, compiler, launches)

    before, shader.make_kernel = shader.make_kernel, make
    try:
        yield every
    finally:
        shader.make_kernel = before
