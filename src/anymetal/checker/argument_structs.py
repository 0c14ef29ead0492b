"""Tensors and lists that are read as a struct none of whose fields is of their type.

`torch.tensor([rows, columns])` holds int64, and so does what a list of ints arrives as: a struct of
`uint` reads the first number twice. One fitting field is enough here, since bytes may be packed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from anymetal.checker.argument_sizes import fields_hint
from anymetal.checker.element_types import Scalar, numbers_of, scalar_of_dtype, scalar_of_number
from anymetal.checker.program import CheckedProgram
from anymetal.checker.suspicion import Suspicion, suspicion
from anymetal.checker.views import BufferView
from anymetal.nouns import Field


def wrong_structs(checked: CheckedProgram, views: Sequence[BufferView]) -> Iterator[Suspicion]:
    """Structs that a kernel takes by reference, from numbers that none of its fields holds."""
    for view in views:
        declared, arrives = view.declared, _arrives(view)
        if declared is None or declared.is_pointer or arrives is None or arrives.is_byte:
            continue
        if _bytes(view) < declared.element_size:
            continue  # too short, whatever its type
        scalars = list(_scalars(declared.fields))
        if not scalars or None in scalars or any(_fits(s, arrives) for s in scalars if s):
            continue
        passed = "a tensor" if view.tensor is not None else f"a list of {len(view.value)} numbers"
        message = (
            f"is {declared.space} {declared.type}&, and the call passes {passed} of"
            f" {arrives.name}: no field of {declared.type} is of that type"
        )
        yield suspicion(checked, view, "argument_type", message, fields_hint(declared))


def _arrives(view: BufferView) -> Scalar | None:
    """The numbers in the memory that a struct is read from; None where it was laid out for it."""
    if view.tensor is not None:
        return scalar_of_dtype(view.tensor.dtype)
    if isinstance(view.value, list | tuple) and not isinstance(view.value[0], torch.Tensor):
        return scalar_of_number(view.value[0], view.cast)
    return None


def _bytes(view: BufferView) -> int:
    return view.extent if view.tensor is not None else len(view.value) * view.element_size


def _scalars(fields: Sequence[Field]) -> Iterator[Scalar | None]:
    """The types of all numbers in a struct; None for what is no number."""
    for field in fields:
        if field.fields:
            yield from _scalars(field.fields)
        else:
            numbers = numbers_of(field.type)
            yield numbers.scalar if numbers else None


def _fits(expected: Scalar, arrives: Scalar) -> bool:
    same_sort = (expected.sort == "float") == (arrives.sort == "float")
    return expected.size == arrives.size and same_sort
