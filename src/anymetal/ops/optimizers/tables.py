"""Lists of tensors go in; tables that one launch takes come out (see shared/tables.h).

A kernel reads and writes memory from its start, in the order of rows. What does not lie so is
copied, and what was written is copied back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from anymetal.ops.declare import AnyOperator, variants
from anymetal.ops.declare.checks import (
    FLOATS,
    MAX_ELEMENTS,
    check_dtype,
    check_shape,
    check_size,
    check_writable,
)
from anymetal.ops.declare.elementwise import choice_for, form
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import aligned, memory_order

Tensor = torch.Tensor
TABLE = 9  # tensors of a launch, as shared/tables.h has it
_LARGE = 1 << 22  # elements of a launch that are many chunks, however long these are


# --- what is asked of lists -----------------------------------------------------------------------


def check_lists(operator: str, **lists: Sequence[Tensor]) -> None:
    """Two lists by their names, of one device and each of one dtype, with the same shapes.

    The first list is written.
    """
    (name, params), (other, grads) = lists.items()
    _check_length(operator, other, grads, name, params)
    alike = _alike(params) and _alike(grads)
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        if (
            i
            and alike
            and param.is_contiguous()
            and grad.is_contiguous()
            and grad.shape == param.shape
        ):
            continue  # as nearly all are; the checks by name take ten times as long
        check_dtype(operator, f"{name}[{i}]", param, FLOATS if i == 0 else [params[0].dtype])
        check_size(operator, f"{name}[{i}]", param)
        check_writable(operator, f"{name}[{i}]", param)
        check_dtype(operator, f"{other}[{i}]", grad, FLOATS if i == 0 else [grads[0].dtype])
        check_shape(operator, f"{other}[{i}]", grad, param.shape, f"that of '{name}[{i}]'")
        for label, tensor in ((f"{name}[{i}]", param), (f"{other}[{i}]", grad)):
            check_device(operator, label, tensor, params[0])


def _alike(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors have one dtype and device, and none is too large."""
    dtypes = {tensor.dtype for tensor in tensors}
    devices = {tensor.device for tensor in tensors}
    sizes = [tensor.numel() for tensor in tensors]
    return len(dtypes) == len(devices) == 1 and max(sizes) <= MAX_ELEMENTS


def check_gradients(operator: str, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
    """Parameters, and gradients of their dtype or float32."""
    check_lists(operator, params=params, grads=grads)
    if params:
        check_dtype(operator, "grads[0]", grads[0], [params[0].dtype, torch.float32])


def check_states(
    operator: str, states: Sequence[Tensor], params: Sequence[Tensor], rows: int
) -> None:
    """float32 states of `rows` rows with an element for each of their parameter's, whose number is
    checked: kernels count the elements of a row."""
    if not rows and not states:
        return
    what = "a row for each state, an element for each of the parameter's"
    _check_length(operator, "states", states, "params", params)
    alike = _alike(states)
    for i, (state, param) in enumerate(zip(states, params, strict=True)):
        shape = (rows, param.numel())
        if i and alike and state.shape == shape and has_rows(state):
            continue
        label = f"states[{i}]"
        check_dtype(operator, label, state, [torch.float32])
        check_shape(operator, label, state, shape, what)
        check_writable(operator, label, state)
        check_device(operator, label, state, params[0])


def check_scalars(operator: str, of: Tensor | None, **scalars: Tensor | None) -> None:
    """Tensors of one float32 element where the parameters are."""
    for name, scalar in scalars.items():
        if scalar is None:
            continue
        check_dtype(operator, name, scalar, [torch.float32])
        if scalar.numel() != 1:
            raise ValueError(
                f"{operator}: argument '{name}' expects one element, got shape {list(scalar.shape)}"
            )
        if of is not None:
            check_device(operator, name, scalar, of)


def check_device(operator: str, name: str, tensor: Tensor, of: Tensor) -> None:
    if tensor.device != of.device:
        raise ValueError(
            f"{operator}: argument '{name}' is on {tensor.device}, the first tensor on"
            f" {of.device}. Move it with .to({str(of.device)!r})"
        )


def _check_length(
    operator: str, name: str, tensors: Sequence[Tensor], other: str, others: Sequence[Tensor]
) -> None:
    if len(tensors) != len(others):
        raise ValueError(
            f"{operator}: argument '{name}' has {len(tensors)} tensors, '{other}' {len(others)}"
        )


# --- tensors as kernels need them -----------------------------------------------------------------


def is_dense(tensor: Tensor) -> bool:
    """Whether elements fill their memory without gaps, in whatever order of the dimensions."""
    expected = 1
    for i in reversed(memory_order(tensor)):
        if tensor.shape[i] != 1 and tensor.stride(i) != expected:
            return False
        expected *= tensor.shape[i]
    return True


def has_rows(state: Tensor) -> bool:
    """Whether the elements of each row stand side by side; rows may lie apart."""
    apart, beside = state.stride()
    return beside == 1 and state.shape[1] <= apart <= MAX_ELEMENTS


class Written:
    """Tensors that kernels write, through copies where they do not lie as kernels need."""

    def __init__(self) -> None:
        self._copied: list[tuple[Tensor, Tensor]] = []

    def dense(self, tensor: Tensor) -> Tensor:
        """In any order of the dimensions."""
        return tensor if tensor.is_contiguous() or is_dense(tensor) else self._copy(tensor)

    def contiguous(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.is_contiguous() else self._copy(tensor)

    def rows(self, state: Tensor) -> Tensor:
        return state if has_rows(state) else self._copy(state)

    def finish(self) -> None:
        for tensor, copy in self._copied:
            tensor.copy_(copy)

    def _copy(self, tensor: Tensor) -> Tensor:
        copy = tensor.contiguous()
        self._copied.append((tensor, copy))
        return copy


class Entry(NamedTuple):
    """A parameter, its gradient and its states, in one order of elements."""

    param: Tensor
    grad: Tensor
    state: Tensor
    place: int  # in the lists of the call
    stride: int  # between rows of the states


def entries(
    written: Written, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[Tensor]
) -> list[Entry]:
    """The tensors that have elements. Without states, a parameter stands in their place."""
    found = []
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        if not param.numel():
            continue
        if not (param.dim() and param.is_contiguous() and grad.is_contiguous()):
            param, grad = bindable(written.contiguous(param)), bindable(grad.contiguous())  # noqa: PLW2901
        state = written.rows(states[i]) if states else param
        stride = state.stride(0) if states else 0
        # Kernels find the other rows by their distance.
        state = state if state.numel() <= MAX_ELEMENTS else state[0]
        found.append(Entry(param, grad, state, i, stride))
    return found


def bindable(tensor: Tensor) -> Tensor:
    """A launch passes a CPU tensor without dimensions by value."""
    return tensor if tensor.dim() else tensor.reshape(1)


# --- launches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launches:
    """How an operator's kernels are launched over tables."""

    chunk: int
    group_size: int
    count: int = TABLE  # tensors of a table
    width: int = 1  # elements that a thread takes at once, where a kernel can

    def shape(self, table: Sequence[int]) -> dict[str, Any]:
        """The numbers of `struct Table` for tensors of these lengths."""
        lengths = [*table, *[0] * (self.count - len(table))]
        starts = [0]
        for length in lengths:
            starts.append(starts[-1] + -(-length // self.chunk))
        return {"starts": starts, "lengths": lengths, "chunk": self.chunk}

    def threads(self, shape: dict[str, Any]) -> dict[str, int]:
        return {"threads": shape["starts"][-1] * self.group_size, "group_size": self.group_size}


def launches_of(operator: AnyOperator, found: Sequence[Entry]) -> Launches:
    elements = sum(entry.param.numel() for entry in found) // -(-len(found) // TABLE)
    shape_class = "large" if elements >= _LARGE else "small"
    choice = choice_for(operator, found[0].param, "tables", shape_class)
    width = choice.values.get("width", 1)
    return Launches(choice.values["chunk"], choice.group_size, width=width)


def run_tables(
    operator: AnyOperator,
    kernel: str,
    found: Sequence[Entry],
    *extra: Tensor,
    each: Mapping[str, Sequence[float]] | None = None,
    **numbers: Any,
) -> None:
    """Launches a kernel once a table. `extra` buffers follow the table's, then the struct.

    `each` has numbers for each tensor of the call.
    """
    if not found:
        return
    first = found[0].param
    launches = launches_of(operator, found)
    variants.record(operator.name, first.dtype, "tables", 1)
    run = operator.kernels.kernel(kernel, first.device)
    prepared = []
    for table in tables(found):
        shape = launches.shape([entry.param.numel() for entry in table])
        filled = [*table, *[table[0]] * (TABLE - len(table))]
        buffers = [tensor for entry in filled for tensor in entry[:3]]
        places = [entry.place for entry in filled]
        own = {name: [values[i] for i in places] for name, values in (each or {}).items()}
        strides = [entry.stride for entry in filled]
        values = {"table": shape, "places": places, "strides": strides, **own, **numbers}
        threads = shape["starts"][-1] * launches.group_size
        prepared.append(((*buffers, *extra, values), threads))
    run.in_turn(prepared, launches.group_size)


def by_width(operator: AnyOperator, found: Sequence[Entry]) -> Iterator[tuple[int, list[Entry]]]:
    """Tensors whose elements and states stand in aligned fours, where the policy takes four at
    once, and the others; with the width of each."""
    if not found:
        return
    widest = launches_of(operator, found).width
    groups: dict[int, list[Entry]] = {widest: [], 1: []}
    for entry in found:
        groups[widest if widest > 1 and _divides(entry, widest) else 1].append(entry)
    yield from ((width, group) for width, group in groups.items() if group)


def _divides(entry: Entry, width: int) -> bool:
    lengths = (entry.param.numel(), entry.stride)
    starts_well = all(aligned(tensor, width) for tensor in entry[:3])
    return starts_well and not any(length % width for length in lengths)


def kernel_name(
    kernel: str, params: Sequence[Tensor], grads: Sequence[Tensor], width: int = 1
) -> str:
    """Gradients have their parameter's dtype, or are float32."""
    name = f"{kernel}_{SUFFIXES[params[0].dtype]}"
    if width > 1:
        name = f"{kernel}_{form(width)}_{SUFFIXES[params[0].dtype]}"
    return name if grads[0].dtype == params[0].dtype else f"{name}_float"


def tables(found: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The fewest tables, all of about one length: a last one of little would keep few busy."""
    count = -(-len(found) // TABLE)
    for i in range(count):
        yield found[len(found) * i // count : len(found) * (i + 1) // count]


def rounding(seed: int | None, call: int) -> dict[str, Any]:
    """`struct Rounding`: to the nearest without a seed."""
    words = (seed or 0) & 0xFFFFFFFFFFFFFFFF
    return {
        "stochastic": int(seed is not None),
        "call": call & 0xFFFFFFFF,
        "seed": [words & 0xFFFFFFFF, words >> 32],
    }
