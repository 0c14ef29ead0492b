"""Numbers and lists of a launch against what the kernel reads there.

A Python int arrives as int64 and a float as float32, alone or in a list, unless `arg_casts` says
otherwise; a tensor of no dimensions arrives as what it is. A kernel that reads anything else gets
bits that mean another number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from anymetal.checker.element_types import (
    Numbers,
    Scalar,
    numbers_of,
    scalar_of_dtype,
    scalar_of_number,
)
from anymetal.checker.finding import Severity
from anymetal.checker.program import CheckedProgram
from anymetal.checker.suspicion import Suspicion, suspicion
from anymetal.checker.views import BufferView

_CASTS = {"float16": "fp16", "bfloat16": "bf16", "int32": "int32", "uint32": "int32",
          "int16": "int16", "uint16": "int16", "int8": "int8", "uint8": "uint8"}  # fmt: skip


def wrong_values(checked: CheckedProgram, views: Sequence[BufferView]) -> Iterator[Suspicion]:
    """Numbers and lists that the kernel reads as other numbers."""
    for view in views:
        if view.value is None or view.declared is None:
            continue
        expected = numbers_of(view.declared.type)
        if expected is None:
            continue
        if not isinstance(view.value, list | tuple):
            yield from _wrong_number(checked, view, expected, view.value)
        elif len(view.value) == 1 and not isinstance(view.value[0], torch.Tensor):
            yield from _wrong_number(checked, view, expected, view.value[0])
        elif not isinstance(view.value[0], torch.Tensor):
            yield from _wrong_list(checked, view, expected)


def _wrong_number(
    checked: CheckedProgram, view: BufferView, expected: Numbers, value: Any
) -> Iterator[Suspicion]:
    arrives = _arrives(value, view.cast)
    number = value.item() if isinstance(value, torch.Tensor) else value
    fault = _fault(expected.scalar, arrives, number)
    if not fault:
        return
    # All bits of a zero are zero, whatever it is read as.
    severity: Severity = "warning" if number == 0 else "error"
    message = f"is {_spelled(view)}, and the call passes {_quoted(value)}: {fault}"
    hint = _hint(view, expected.scalar, number)
    yield suspicion(checked, view, "argument_type", message, hint, severity)


def _wrong_list(
    checked: CheckedProgram, view: BufferView, expected: Numbers
) -> Iterator[Suspicion]:
    items = view.value
    arrives = _arrives(items[0], view.cast)
    where = f"is {_spelled(view)}, and the call passes a list of {len(items)} numbers"
    if (arrives.sort == "float") != (expected.scalar.sort == "float") or (
        arrives.size != expected.scalar.size
    ):
        fault = f"they arrive as {arrives.name}"
        hint = _list_hint(view, expected.scalar, items)
        yield suspicion(checked, view, "argument_type", f"{where}: {fault}", hint)
        return
    for place, item in enumerate(items):
        fault = _fault(expected.scalar, arrives, item)
        if fault:
            message = f"{where}: {_quoted(item)} is element {place}, and {fault}"
            yield suspicion(checked, view, "argument_type", message)
            return


def _arrives(value: Any, cast: str | None) -> Scalar:
    if not isinstance(value, torch.Tensor):
        return scalar_of_number(value, cast)
    found = scalar_of_dtype(value.dtype)
    return scalar_of_number(1.0, None) if found.name == "float64" else found


def _fault(expected: Scalar, arrives: Scalar, number: Any) -> str:
    """Why a number is another one when the kernel reads it; empty if it is the same."""
    if expected.sort == "float" or arrives.sort == "float":
        same = expected.name == arrives.name or expected.is_byte
        return "" if same else f"it arrives as {arrives.name}"
    if not expected.holds(int(number)):
        if number < 0 and expected.sort == "unsigned":
            return "it is negative"
        return "it does not fit"
    # What is behind a narrower number is zero, and so is not the sign of a negative one.
    if number < 0 and arrives.size < expected.size:
        return f"it arrives as {arrives.name}"
    return ""


def _hint(view: BufferView, expected: Scalar, number: Any) -> str:
    if expected.sort == "float" and expected.size == 4:
        return f"Pass a Python float: float({view.name})."
    if expected.sort == "float":
        return (
            f"Pass a float with arg_casts={{{view.index}: '{_CASTS[expected.name]}'}}, or a"
            f" {expected.name} tensor of one element."
        )
    if isinstance(number, float):
        return f"Pass an int: int({view.name}); or declare the parameter as float."
    return "Pass a number that the parameter's type holds, or declare it as a wider type."


def _list_hint(view: BufferView, expected: Scalar, items: Sequence[Any]) -> str:
    tensor = f"torch.tensor({view.name}, dtype=torch.{_plain(expected.name)})"
    cast = _CASTS.get(expected.name)
    same_sort = (expected.sort == "float") == isinstance(items[0], float)
    if cast and same_sort:
        return f"Pass arg_casts={{{view.index}: '{cast}'}}, or {tensor}."
    return f"Pass {tensor}."


def _plain(name: str) -> str:
    """Signed integers: torch does little with the unsigned ones."""
    return name.removeprefix("u") if name in ("uint16", "uint32", "uint64") else name


def _spelled(view: BufferView) -> str:
    declared = view.declared
    assert declared is not None
    return f"{declared.space} {declared.type}{'*' if declared.is_pointer else '&'}"


def _quoted(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"the tensor {value.item()} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"the float {value}"
    return f"the {type(value).__name__} {value}"
