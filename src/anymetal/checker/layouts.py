"""Tensors that are not contiguous, in kernels that take no strides: when that changes a result.

A kernel is handed memory, never strides. Elements with gaps between them (a slice of columns) are
judged by what is touched: the shadow runtime knows from `gaps_of` which bytes are the tensor's.
Elements without gaps in another order (a transposed tensor) are judged by the other arguments: a
kernel that works element by element does not mind as long as all have the same order.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anymetal.checker.program import CheckedProgram
from anymetal.checker.suspicion import Suspicion, suspicion
from anymetal.checker.views import BufferView
from anymetal.nouns import Argument, Field
from anymetal.passes.provenance import Root

_STRIDES = re.compile(
    r"stride|pitch|layout|trans|(^|_)ld([a-z]|_|$)|(^|_)steps?($|_)", re.IGNORECASE
)
_MOST_NUMBERS = 64  # a tensor with more elements is data, and not a list of sizes


def wrong_layouts(checked: CheckedProgram, views: Sequence[BufferView]) -> Iterator[Suspicion]:
    """Tensors whose order of elements the kernel cannot know."""
    for view in views:
        if view.tensor is None or view.index is None or view.tensor.is_contiguous():
            continue
        if takes_strides(checked, views, view.tensor):
            continue
        if 0 in _steps(view.tensor):
            words = "there are fewer elements in memory than the shape says"
            yield _suspicion(checked, view, words, only_with="out_of_bounds")
        elif gaps_of(view) is None and _is_at_odds(checked, view, views):
            yield _suspicion(checked, view, "it sees the elements in another order")


def _suspicion(
    checked: CheckedProgram, view: BufferView, words: str, only_with: str = ""
) -> Suspicion:
    found = suspicion(
        checked, view, "layout",
        f"is not contiguous (shape {tuple(view.tensor.shape)}, strides {view.tensor.stride()}), and"
        f" the kernel takes no strides: {words}",
        f"Pass {view.name}.contiguous(), or pass the strides to the kernel and use them.",
        "warning",
    )  # fmt: skip
    return Suspicion(view.name, found.finding, only_with)


@dataclass(frozen=True)
class Gaps:
    """Where the elements are: runs of bytes, at steps of (bytes, length), the largest first."""

    steps: tuple[tuple[int, int], ...]
    run: int


def gaps_of(view: BufferView) -> Gaps | None:
    """None where every byte up to the last element is the tensor's, and where elements overlap."""
    tensor = view.tensor
    if tensor is None or tensor.numel() * view.element_size >= view.extent:
        return None
    lengths = (n for n in tensor.shape if n > 1)
    ordered = sorted(zip(_steps(tensor), lengths, strict=True))
    run = view.element_size
    while ordered and ordered[0][0] * view.element_size == run:
        run *= ordered.pop(0)[1]
    reach = run
    for step, length in ordered:
        if step * view.element_size < reach:
            return None
        reach += step * view.element_size * (length - 1)
    steps = tuple((step * view.element_size, n) for step, n in reversed(ordered))
    return Gaps(steps, run)


def _steps(tensor: Any) -> tuple[int, ...]:
    return tuple(s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1)


def _is_at_odds(checked: CheckedProgram, view: BufferView, views: Sequence[BufferView]) -> bool:
    """Whether some other tensor that the kernel touches has its elements in another order."""
    touched = {t.root for t in checked.touched}
    unknown = Root("unknown") in touched
    others = [
        other.tensor
        for other in views
        if other.tensor is not None and other.index != view.index and other.tensor.numel() > 1
        and (unknown or Root("buffer", other.index or 0) in touched)
    ]  # fmt: skip
    tensor = view.tensor
    if _is_channels_last(tensor):  # an order that kernels are written for
        others = [other for other in others if other.shape == tensor.shape]
    return any((o.shape, o.stride()) != (tensor.shape, tensor.stride()) for o in others)


def _is_channels_last(tensor: Any) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(tensor.dim())
    return wanted is not None and tensor.is_contiguous(memory_format=wanted)


def takes_strides(checked: CheckedProgram, views: Sequence[BufferView], tensor: Any) -> bool:
    """Whether a parameter or a field of one is called so, a number is one of the strides and no
    size, or all strides stand behind one another."""
    if any(_STRIDES.search(name) for name in _names(checked.arguments)):
        return True
    shapes = {size for view in views if view.tensor is not None for size in view.tensor.shape}
    steps = _steps(tensor)
    wanted = {step for step in steps if step > 1} - shapes
    lists = [list(_integers(view)) for view in views]
    return any(wanted.intersection(numbers) or _has(numbers, steps) for numbers in lists)


def _has(numbers: list[int], steps: tuple[int, ...]) -> bool:
    """Whether several strides are all there, in their order."""
    count = len(steps)
    starts = range(len(numbers) - count + 1) if count > 1 else ()
    return any(tuple(numbers[start : start + count]) == steps for start in starts)


def _names(arguments: Sequence[Argument]) -> Iterator[str]:
    for argument in arguments:
        yield from (argument.name, argument.type)
        yield from _field_names(argument.fields)


def _field_names(fields: Sequence[Field]) -> Iterator[str]:
    for field in fields:
        yield from (field.name, field.type)
        yield from _field_names(field.fields)


def _integers(view: BufferView) -> Iterator[int]:
    """The integers of an argument, also those in bytes that stand for a struct."""
    tensor = view.tensor
    yield from view.words
    if tensor is None:
        items = view.value if isinstance(view.value, list | tuple) else [view.value]
        yield from (item for item in items if isinstance(item, int))
    elif not tensor.is_floating_point() and tensor.is_contiguous():
        # Read where it is: a copy would wait for the device's queue, which may wait for this.
        size = tensor.element_size() if tensor.element_size() > 1 else 4
        count = view.extent // size
        if 0 < count <= _MOST_NUMBERS:
            data = ctypes.string_at(view.address, count * size)
            yield from np.frombuffer(data, dtype=f"<i{size}").tolist()
