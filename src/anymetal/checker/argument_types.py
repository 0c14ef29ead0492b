"""The tensors of a launch against the types of the kernel's pointers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from anymetal.checker.element_types import Scalar, numbers_of, scalar_of_dtype
from anymetal.checker.program import CheckedProgram
from anymetal.checker.suspicion import Suspicion, suspicion
from anymetal.checker.views import BufferView
from anymetal.passes.provenance import Root

_POINTERS = re.compile(r"array<(.*) \*, \d+>")


def wrong_types(checked: CheckedProgram, views: Sequence[BufferView]) -> Iterator[Suspicion]:
    """Tensors whose elements have not the size or the type that the kernel's pointer says."""
    for view in views:
        if view.tensor is None or view.declared is None:
            continue
        type_ = view.declared.type
        if view.index is None:
            pointers = _POINTERS.fullmatch(type_)
            type_ = pointers[1].removeprefix("const ") if pointers else ""
        expected = numbers_of(type_)
        if expected is not None:
            yield from _judged(checked, view, type_, expected.scalar)


def _judged(
    checked: CheckedProgram, view: BufferView, type_: str, expected: Scalar
) -> Iterator[Suspicion]:
    found = scalar_of_dtype(view.tensor.dtype)
    if expected.is_byte or found.is_byte or found == expected:
        return
    if view.tensor.dtype.is_complex and found.size != expected.size:
        dtype = str(view.tensor.dtype).removeprefix("torch.")
    else:
        dtype = found.name
    if found.size != expected.size:
        message = (
            f"is a pointer to {type_}, whose elements have {expected.size} bytes; the tensor is"
            f" {dtype}, of {view.element_size} bytes"
        )
        yield suspicion(checked, view, "element_size", message)
    elif _differ(expected, found) and not _is_moved(checked, view, expected):
        message = f"is a pointer to {type_}; the tensor is {found.name}"
        yield suspicion(checked, view, "argument_type", message, _hint(view, expected))


def _differ(expected: Scalar, found: Scalar) -> bool:
    """Integers of one size stand for one another: torch has hardly any unsigned ones."""
    if "float" in (expected.sort, found.sort):
        return True
    return (expected.sort == "bool") != (found.sort == "bool")


def _is_moved(checked: CheckedProgram, view: BufferView, expected: Scalar) -> bool:
    """Whether the kernel takes the bits as they are, whatever they stand for."""
    is_known = view.index is not None
    return (
        is_known
        and expected.sort != "float"
        and not checked.computes(Root("buffer", view.index or 0))
    )


def _hint(view: BufferView, expected: Scalar) -> str:
    base = view.name
    hint = f"Pass {base}.to(torch.{expected.name}), or call the kernel's instance for this dtype"
    if expected.sort == "float":
        return f"{hint}."
    return f"{hint}; where the kernel means the bits, pass {base}.view(torch.{expected.name})."
