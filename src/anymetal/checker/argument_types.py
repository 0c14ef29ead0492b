"""The tensors of a launch against the types of the kernel's pointers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anymetal.checker.finding import Finding, Place
from anymetal.checker.program import CheckedProgram
from anymetal.checker.views import BufferView
from anymetal.nouns import Argument
from anymetal.passes.provenance import Root

_SCALAR_BYTES = {
    "half": 2, "bfloat": 2, "float": 4, "short": 2, "ushort": 2, "int": 4, "uint": 4, "long": 8,
    "ulong": 8,
}  # fmt: skip
# Integers of one size stand for one another: torch has hardly any unsigned ones. Floats do not.
_DTYPES = {"half": "float16", "bfloat": "bfloat16", "float": "float32"}


def wrong_types(checked: CheckedProgram, views: Sequence[BufferView]) -> Iterator[Finding]:
    """Tensors whose elements have not the size or the type that the kernel's pointer says."""
    arguments = {a.index: a for a in checked.arguments if a.role == "buffer"}
    for view in views:
        argument = arguments.get(view.index)
        if argument is None or view.tensor is None or view.element_size == 1:
            continue
        found = _judged(checked, argument, view)
        if found is not None:
            yield found


def _judged(checked: CheckedProgram, argument: Argument, view: BufferView) -> Finding | None:
    name = argument.type.removeprefix("packed_").rstrip("234")
    dtype = str(view.tensor.dtype).removeprefix("torch.")
    pointer = f"argument '{argument.name}' (buffer {view.index}) is a pointer to {argument.type}"
    expected = _SCALAR_BYTES.get(name)
    if expected is not None and expected != view.element_size:
        message = (
            f"{pointer}, whose elements have {expected} bytes; the tensor is {dtype}, of"
            f" {view.element_size} bytes"
        )
        return _finding(checked, argument, "element_size", message)
    touched = any(t.root == Root("buffer", argument.index or 0) for t in checked.touched)
    if touched and dtype != _DTYPES.get(name, dtype):
        return _finding(checked, argument, "argument_type", f"{pointer}; the tensor is {dtype}")
    return None


def _finding(checked: CheckedProgram, argument: Argument, kind: str, message: str) -> Finding:
    declared = checked.parameters[argument.name]
    place = Place(declared.position, declared.text, "argument", None, None, None)
    return Finding(
        kind, "error", checked.name, message, place, buffer=argument.name, space=argument.space
    )
