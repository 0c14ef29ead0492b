"""What a kernel of the library relies on is checked on the host, before the launch.

A kernel cannot raise, so a wrong launch shows as wrong numbers, or not at all. Each check takes the
name that the message begins with; all of them together cost a few microseconds a launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from anymetal.errors import LimitError
from anymetal.nouns import MAX_GROUP_SIZE, SIMDGROUP

INDEX_LIMIT = 2**31

Size = int | Sequence[int]

# Parameters that only a kernel with simdgroup functions has.
_SIMDGROUP_BUILTINS = frozenset(
    (
        "thread_index_in_simdgroup",
        "simdgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "threads_per_simdgroup",
    )
)


def check_group(
    kernel: str, group_size: Size, *, limit: int = MAX_GROUP_SIZE, collectives: bool = False
) -> None:
    """A threadgroup within the limit, and of whole simdgroups where lanes talk to each other."""
    threads = group_size if isinstance(group_size, int) else math.prod(group_size)
    if not 1 <= threads <= limit:
        raise LimitError(
            f"{kernel}: group_size {group_size!r} is {threads} threads, but a threadgroup of this"
            f" kernel has 1 to {limit}. Choose another in a policy file"
        )
    if collectives and threads % SIMDGROUP:
        raise LimitError(
            f"{kernel}: group_size {group_size!r} is {threads} threads; the kernel uses simdgroup"
            f" functions, so it must be a multiple of {SIMDGROUP}"
        )


def check_tile(kernel: str, what: str, size: int, tile: int) -> None:
    """A size that a kernel walks through in whole tiles."""
    if tile < 1 or size % tile:
        raise ValueError(
            f"{kernel}: {what} is {size}, which is no multiple of the tile of {tile}. Pad it, or"
            " use a variant without tiles"
        )


def check_dense(kernel: str, **tensors: torch.Tensor) -> None:
    """Tensors whose elements stand side by side, in order."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"{kernel}: argument '{name}' of shape {tuple(tensor.shape)} has strides"
                f" {tensor.stride()}, but the kernel reads a dense tensor. Pass it with"
                " .contiguous()"
            )


def check_aligned(kernel: str, size: int, **tensors: torch.Tensor) -> None:
    """Tensors that start at a multiple of `size` bytes, as a vector load needs."""
    for name, tensor in tensors.items():
        past = tensor.data_ptr() % size
        if past:
            raise ValueError(
                f"{kernel}: argument '{name}' starts {past} bytes past a multiple of {size}, but"
                " the kernel loads vectors of that size. Use the scalar variant, or pass .clone()"
            )


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
