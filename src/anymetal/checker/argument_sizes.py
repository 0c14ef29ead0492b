"""Arguments that are shorter than what the kernel reads there, of another number, or too many."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import torch

from anymetal.checker.element_types import numbers_of
from anymetal.checker.program import CheckedProgram
from anymetal.checker.suspicion import Suspicion, at_parameter, suspicion
from anymetal.checker.views import BufferView
from anymetal.nouns import Argument, Field

_POINTERS = re.compile(r"array<.* \*, (\d+)>")


def wrong_sizes(checked: CheckedProgram, views: Sequence[BufferView]) -> Iterator[Suspicion]:
    """Arguments with other sizes than the kernel's parameters, and those without a parameter."""
    for view in views:
        declared = view.declared
        if view.index is None:
            continue
        if declared is None:
            yield from _too_many(checked, view)
        elif not _is_read_whole(declared):
            continue
        elif isinstance(view.value, list | tuple | int | float):
            yield from _wrong_length(checked, view, declared)
        elif view.extent < declared.element_size:
            yield _too_short(checked, view, declared, view.extent)


def _is_read_whole(declared: Argument) -> bool:
    """Whether the kernel takes a whole object from there, and not as many numbers as there are."""
    return not declared.is_pointer or bool(declared.fields)


def _too_short(
    checked: CheckedProgram, view: BufferView, declared: Argument, size: int
) -> Suspicion:
    message = f"has {size} bytes, {declared.type} has {declared.element_size}"
    return suspicion(checked, view, "argument_size", message, fields_hint(declared))


def _too_many(checked: CheckedProgram, view: BufferView) -> Iterator[Suspicion]:
    """Parameters may leave gaps, so only arguments behind the last one are too many."""
    last = max(checked.buffers, default=-1)
    if view.index is None or view.index <= last:
        return
    message = (
        f"argument {view.index} is passed, but the kernel's last is"
        f" {f'buffer {last}' if last >= 0 else 'none at all'}"
    )
    hint = "Compare the call with the kernel's parameters: argument i is [[buffer(i)]]."
    found = at_parameter(checked, view.name, "argument_size", message, hint, "warning")
    yield Suspicion(None, found)


def _wrong_length(
    checked: CheckedProgram, view: BufferView, declared: Argument
) -> Iterator[Suspicion]:
    items = view.value if isinstance(view.value, list | tuple) else [view.value]
    pointers, numbers = _POINTERS.fullmatch(declared.type), numbers_of(declared.type)
    if pointers is None and numbers is None:
        if len(items) * view.element_size < declared.element_size:
            yield _too_short(checked, view, declared, len(items) * view.element_size)
        return
    counts = {int(pointers[1])} if pointers else _counts(declared)
    if len(items) not in counts:
        what = "tensors" if isinstance(items[0], torch.Tensor) else "numbers"
        message = f"gets {len(items)} {what}, {declared.type} has {min(counts)}"
        yield suspicion(checked, view, "argument_size", message)


def _counts(declared: Argument) -> set[int]:
    """How many numbers fill a parameter: each vector of three has room for a fourth, and one alone
    may leave it out."""
    numbers = numbers_of(declared.type)
    assert numbers is not None
    places = declared.element_size // numbers.scalar.size
    return {places, 3} if numbers.count == 3 else {places}


def fields_hint(declared: Argument) -> str:
    """What a struct has, and how its values are passed by name."""
    if not declared.fields:
        return f"Pass {declared.element_size} bytes."
    fields = ", ".join(f"'{field.name}': ..." for field in declared.fields)
    last = declared.fields[-1]
    return (
        f"{declared.type} ends with {_spelled(last)} at byte {last.offset}. Pass its values by"
        f" name, as in {{{fields}}}, and they are laid out as the kernel reads them."
    )


def _spelled(field: Field) -> str:
    shape = "".join(f"[{extent}]" for extent in field.shape)
    return f"'{field.name}' ({field.type}{shape}, {field.size * math.prod(field.shape)} bytes)"
