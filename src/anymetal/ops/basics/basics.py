"""fill, axpy and copy: the smallest operators, and the first to read."""

from __future__ import annotations

import math

import torch
from torch.types import Number

from anymetal.ops.declare import FLOATS, Call, Case, Cost, Gradients, operator, variants
from anymetal.ops.declare.cases import ELEMENTS, element_cases, random_case
from anymetal.ops.declare.checks import (
    check_dtype,
    check_input,
    check_pair,
    check_size,
    check_writable,
)
from anymetal.ops.declare.elementwise import choice_for, launch_map
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import as_rows, common_split, memory_order

SOURCE = "basics.metal"
Tensor = torch.Tensor
_SHAPES = ((0,), (), (1,), (31,), (32,), (33,), (4099,), (2, 3, 64))


# --- fill -----------------------------------------------------------------------------------------


def _check_real(name: str, argument: str, value: Number) -> None:
    if isinstance(value, complex):
        raise TypeError(f"{name}: argument '{argument}' expects a real number, got {value}")


def _check_fill(name: str, input: Tensor, value: Number) -> None:
    check_input(name, input)
    _check_real(name, "value", value)
    if isinstance(value, float | int) and math.isfinite(value):
        largest = torch.finfo(input.dtype).max
        if abs(value) > largest:
            raise ValueError(
                f"{name}: argument 'value' is {value}, but {input.dtype} ends at {largest}"
            )


@operator(
    source=SOURCE,
    reference=torch.fill,
    cases=[random_case(shape, value=0.1) for shape in _SHAPES],
    bench=element_cases(1, value=0.1),
    cost=lambda input, **_: Cost(read=0, write=input.nbytes),
)
def fill(input: Tensor, value: Number) -> Tensor:
    """A tensor like `input`, full of `value`, as torch.fill. `fill_` writes over its input."""
    _check_fill("fill", input, value)
    return torch.empty_like(input)


@fill.run
def _(output: Tensor, input: Tensor, value: Number) -> None:
    launch_map(fill, "fill", as_rows(output), value=float(value))


@fill.backward()
def _(call: Call, grad: Tensor) -> Gradients:
    # The result does not depend on the input.
    return {"input": torch.zeros_like(grad)}


@operator(
    source=SOURCE,
    reference=torch.Tensor.fill_,
    cases=[random_case(shape, value=0.1) for shape in _SHAPES],
    cost=lambda input, **_: Cost(read=0, write=input.nbytes),
    mutates=["input"],
    functional=fill,
)
def fill_(input: Tensor, value: Number) -> Tensor:
    """`value` written over a tensor, as torch.Tensor.fill_."""
    _check_fill("fill_", input, value)
    check_writable("fill_", "input", input)
    return input


@fill_.run
def _(input: Tensor, value: Number) -> None:
    if common_split(input) is not None:
        launch_map(fill, "fill", as_rows(input), value=float(value))
    else:
        _copy_into(input, fill(input, value))


# --- axpy -----------------------------------------------------------------------------------------


def _axpy_case(shape: tuple[int, ...], order: str) -> Case:
    """alpha, x and y in this order."""
    pair = random_case(shape, shape)

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[object], dict[str, object]]:
        (x, y), _ = pair.make(dtype, device, generator)
        return [{"a": 0.3, "x": x, "y": y}[letter] for letter in order], {}

    return Case(f"0.3 {pair.name}", make)


def _axpy_cost(alpha: Number, x: Tensor, y: Tensor) -> Cost:
    return Cost(read=x.nbytes + y.nbytes, write=y.nbytes, flops=2 * x.numel())


@operator(
    source=SOURCE,
    reference=lambda alpha, x, y: torch.add(y, x, alpha=alpha),
    naive=lambda alpha, x, y: alpha * x + y,
    cases=[_axpy_case(shape, "axy") for shape in _SHAPES],
    bench=[_axpy_case((size,), "axy") for size in ELEMENTS],
    cost=_axpy_cost,
    mixed="promote",
    twice=True,
)
def axpy(alpha: Number, x: Tensor, y: Tensor) -> Tensor:
    """alpha * x + y, rounded once."""
    check_pair("axpy", "y", y, "x", x)
    _check_real("axpy", "alpha", alpha)
    return torch.empty_like(y)


@axpy.run
def _(output: Tensor, alpha: Number, x: Tensor, y: Tensor) -> None:
    launch_map(axpy, "axpy", as_rows(x, y, output), alpha=float(alpha))


@operator(
    source=SOURCE,
    reference=lambda grad, alpha: grad * alpha,
    cases=[random_case(shape, alpha=0.3) for shape in _SHAPES],
    cost=lambda grad, alpha: Cost(read=grad.nbytes, write=grad.nbytes, flops=grad.numel()),
)
def axpy_backward(grad: Tensor, alpha: Number) -> Tensor:
    check_input("axpy_backward", grad, "grad")
    _check_real("axpy_backward", "alpha", alpha)
    return torch.empty_like(grad)


@axpy_backward.run
def _(output: Tensor, grad: Tensor, alpha: Number) -> None:
    launch_map(axpy_backward, "axpy_backward", as_rows(grad, output), alpha=float(alpha))


@axpy.backward()
def _(call: Call, grad: Tensor) -> Gradients:
    return {"x": axpy_backward(grad, call.alpha), "y": grad}


@axpy_backward.backward()
def _(call: Call, grad: Tensor) -> Gradients:
    return {"grad": axpy_backward(grad, call.alpha)}


@operator(
    source=SOURCE,
    reference=lambda y, alpha, x: y.add_(x, alpha=alpha),
    cases=[_axpy_case(shape, "yax") for shape in _SHAPES],
    cost=lambda y, alpha, x: _axpy_cost(alpha, x, y),
    mutates=["y"],
    functional=lambda y, alpha, x: axpy(alpha, x, y),
)
def _axpy_(y: Tensor, alpha: Number, x: Tensor) -> Tensor:
    check_pair("axpy_", "y", y, "x", x)
    _check_real("axpy_", "alpha", alpha)
    check_writable("axpy_", "y", y)
    return y


@_axpy_.run
def _(y: Tensor, alpha: Number, x: Tensor) -> None:
    if common_split(y) is not None:
        launch_map(axpy, "axpy", as_rows(x, y, y), alpha=float(alpha))
    else:
        _copy_into(y, axpy(alpha, x, y))


def axpy_(alpha: Number, x: Tensor, y: Tensor) -> Tensor:
    """alpha * x + y, written over `y`, as BLAS does."""
    return _axpy_(y, alpha, x)


# --- copy -----------------------------------------------------------------------------------------


def _reference_copy(input: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return input.clone() if dtype is None or input.dtype == torch.float64 else input.to(dtype)


@operator(
    source=SOURCE,
    reference=_reference_copy,
    cases=[random_case(shape) for shape in _SHAPES],
    bench=element_cases(1),
    cost=lambda input, **_: Cost(read=input.nbytes, write=input.nbytes),
)
def copy(input: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of a tensor, as torch.clone, or converted to `dtype` on the way."""
    check_input("copy", input)
    if dtype is not None and dtype not in FLOATS:
        expected = ", ".join(str(known) for known in FLOATS)
        raise TypeError(f"copy: argument 'dtype' expects {expected}, got {dtype}")
    return torch.empty_like(input, dtype=dtype or input.dtype)


@copy.run
def _(output: Tensor, input: Tensor, dtype: torch.dtype | None = None) -> None:
    _copy_into(output, input)


@copy.backward()
def _(call: Call, grad: Tensor) -> Gradients:
    before = call.like("input").dtype
    return {"input": grad if before == grad.dtype else copy(grad, before)}


def _copy_into(output: Tensor, input: Tensor) -> None:
    """Elements of one tensor into another of the same shape, whatever their strides and dtypes."""
    if output.numel() == 0:
        return
    dtypes = f"{SUFFIXES[input.dtype]}_{SUFFIXES[output.dtype]}"
    order = memory_order(output)
    if common_split(input, output) is not None:
        launch_map(copy, "copy", as_rows(input, output), kinds=dtypes)
        return
    variants.record("copy", input.dtype, "strided", 1)
    kernel = copy.kernels.kernel(f"copy_strided_{dtypes}", input.device)
    dimensions = [
        number
        for i in reversed(order)
        for number in (input.shape[i], input.stride(i), output.stride(i))
    ]
    group_size = choice_for(copy, input, "elementwise").group_size
    count = output.numel()
    kernel(input, output, len(order), dimensions, threads=count, group_size=min(count, group_size))


@operator(
    source=SOURCE,
    reference=torch.Tensor.copy_,
    cases=[random_case(shape, shape[-1:]) for shape in _SHAPES],
    cost=lambda input, source: Cost(read=source.nbytes, write=input.nbytes),
    mutates=["input"],
    functional=lambda input, source: copy(source.expand_as(input), input.dtype),
)
def copy_(input: Tensor, source: Tensor) -> Tensor:
    """`source` spread over `input`, as torch.Tensor.copy_."""
    check_input("copy_", input)
    check_dtype("copy_", "source", source, FLOATS)
    check_size("copy_", "source", source)
    check_writable("copy_", "input", input)
    if source.device != input.device:
        raise ValueError(
            f"copy_: argument 'source' is on {source.device}, but 'input' is on {input.device}."
            f" Move it with .to({str(input.device)!r})"
        )
    _spread(input, source)
    return input


@copy_.run
def _(input: Tensor, source: Tensor) -> None:
    _copy_into(input, _spread(input, source))


def _spread(input: Tensor, source: Tensor) -> Tensor:
    try:
        return source.expand_as(input)
    except RuntimeError:
        raise ValueError(
            f"copy_: argument 'source' of shape {list(source.shape)} cannot be spread over 'input'"
            f" of shape {list(input.shape)}"
        ) from None
