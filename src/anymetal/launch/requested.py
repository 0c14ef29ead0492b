"""Which kernels a block of code asks for: its calls go in, and nothing runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anymetal.engines.compiler import AnyCompiler
from anymetal.launch import shader
from anymetal.launch.kernel import Kernel
from anymetal.launch.shape import Extent
from anymetal.nouns import MAX_GROUP_SIZE, Argument, Scalar, Source

Request = tuple[Source, str, dict[str, Scalar]]


class RequestedKernel(Kernel):
    """A kernel by name alone: calls do nothing."""

    arguments: tuple[Argument, ...] = ()
    max_threads_per_threadgroup = MAX_GROUP_SIZE

    def __init__(self, name: str, constants: Mapping[str, Scalar], compiler: AnyCompiler) -> None:
        self.name = name
        self.constants = dict(constants)

    def __call__(self, *args: Any, **keywords: Any) -> None:
        pass

    def in_turn(self, launches: Sequence[tuple[tuple[Any, ...], Extent]], group_size: int) -> None:
        pass


@contextlib.contextmanager
def requests() -> Iterator[list[Request]]:
    """The kernels that libraries are asked for inside the block. Results of calls are not filled
    in; a library that is kept beyond the block has kernels that do nothing."""
    found: list[Request] = []

    def make(name: str, constants: Mapping[str, Scalar], compiler: AnyCompiler) -> Kernel:
        found.append((compiler.source, name, dict(constants)))
        return RequestedKernel(name, constants, compiler)

    before, shader.make_kernel = shader.make_kernel, make
    try:
        yield found
    finally:
        shader.make_kernel = before
