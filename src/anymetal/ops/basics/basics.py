"""fill, axpy and copy: the smallest operators, and the first to read."""

from __future__ import annotations

import math
from typing import Any

import torch

from anymetal.ops.declare import variants
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.checks import (
    check_dtype,
    check_input,
    check_pair,
    check_size,
    check_writable,
)
from anymetal.ops.declare.declare import FLOATS, Case, Cost, Operator
from anymetal.ops.declare.elementwise import choice_for, launch_map
from anymetal.ops.declare.in_place import InPlace
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import as_rows, common_split, memory_order

SOURCE = "basics/basics.metal"
Number = int | float
_SHAPES = ((0,), (), (1,), (31,), (32,), (33,), (4099,), (2, 3, 64))


# --- fill -----------------------------------------------------------------------------------------

_fill = Operator(
    "fill(Tensor input, Scalar value) -> Tensor",
    SOURCE,
    lambda input, value: torch.fill(input, value),
    cases=[random_case(shape, value=0.1) for shape in _SHAPES],
    cost=lambda input, **_: Cost(read=0, write=input.nbytes),
)


@_fill.forward
def _(input: torch.Tensor, value: Number) -> torch.Tensor:
    _check_fill(input, value)
    output = torch.empty_like(input)
    launch_map(_fill, "fill", as_rows(output), float(value))
    return output


@_fill.fake
def _(input: torch.Tensor, value: Number) -> torch.Tensor:
    _check_fill(input, value)
    return torch.empty_like(input)


def _check_fill(input: torch.Tensor, value: Number) -> None:
    check_input("fill", input)
    if isinstance(value, float | int) and math.isfinite(value):
        largest = torch.finfo(input.dtype).max
        if abs(value) > largest:
            raise ValueError(
                f"fill: argument 'value' is {value}, but {input.dtype} ends at {largest}"
            )


def _fill_over(input: torch.Tensor, value: Number) -> None:
    _check_fill(input, value)
    check_writable("fill", "input", input)
    if common_split(input) is not None:
        launch_map(_fill, "fill", as_rows(input), float(value))
    else:
        _copy_into(input, _fill(input, value))


_fill.gradient(
    lambda ctx, inputs, output: None,
    # The result does not depend on the input.
    lambda ctx, grad: (torch.zeros_like(grad), None),
)


# --- axpy -----------------------------------------------------------------------------------------

_axpy = Operator(
    "axpy(Scalar alpha, Tensor x, Tensor y) -> Tensor",
    SOURCE,
    lambda alpha, x, y: torch.add(y, x, alpha=alpha),
    cost=lambda alpha, x, y: Cost(read=x.nbytes + y.nbytes, write=y.nbytes, flops=2 * x.numel()),
)
_axpy_backward = Operator(
    "axpy_backward(Tensor grad, Scalar alpha) -> Tensor",
    SOURCE,
    lambda grad, alpha: grad * alpha,
    cases=[random_case(shape, alpha=0.3) for shape in _SHAPES],
    cost=lambda grad, alpha: Cost(read=grad.nbytes, write=grad.nbytes, flops=grad.numel()),
    differentiable=False,
)


def _axpy_case(shape: tuple[int, ...]) -> Case:
    pair = random_case(shape, shape)

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        tensors, _ = pair.make(dtype, device, generator)
        return [0.3, *tensors], {}

    return Case(f"0.3 {pair.name}", make)


_axpy.cases = [_axpy_case(shape) for shape in _SHAPES]


@_axpy.forward
def _(alpha: Number, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    check_pair("axpy", "y", y, "x", x)
    output = torch.empty_like(y)
    launch_map(_axpy, "axpy", as_rows(x, y, output), float(alpha))
    return output


@_axpy.fake
def _(alpha: Number, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    check_pair("axpy", "y", y, "x", x)
    return torch.empty_like(y)


@_axpy_backward.forward
def _(grad: torch.Tensor, alpha: Number) -> torch.Tensor:
    check_input("axpy_backward", grad, "grad")
    result = torch.empty_like(grad)
    launch_map(_axpy_backward, "axpy_backward", as_rows(grad, result), float(alpha))
    return result


@_axpy_backward.fake
def _(grad: torch.Tensor, alpha: Number) -> torch.Tensor:
    return torch.empty_like(grad)


def _keep_alpha(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.alpha = inputs[0]


_axpy.gradient(_keep_alpha, lambda ctx, grad: (None, _axpy_backward(grad, ctx.alpha), grad))
_axpy_backward.without_gradient("axpy can be differentiated once")


def _axpy_over(y: torch.Tensor, alpha: Number, x: torch.Tensor) -> None:
    check_pair("axpy", "y", y, "x", x)
    check_writable("axpy", "y", y)
    if common_split(y) is not None:
        launch_map(_axpy, "axpy", as_rows(x, y, y), float(alpha))
    else:
        _copy_into(y, _axpy(alpha, x, y))


# --- copy -----------------------------------------------------------------------------------------


def _reference_copy(input: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    return input.clone() if dtype is None or input.dtype == torch.float64 else input.to(dtype)


_copy = Operator(
    "copy(Tensor input, ScalarType? dtype=None) -> Tensor",
    SOURCE,
    _reference_copy,
    cases=[random_case(shape) for shape in _SHAPES],
    cost=lambda input, **_: Cost(read=input.nbytes, write=input.nbytes),
)


@_copy.forward
def _(input: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    output = torch.empty_like(input, dtype=_checked_copy(input, dtype))
    _copy_into(output, input)
    return output


@_copy.fake
def _(input: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.empty_like(input, dtype=_checked_copy(input, dtype))


def _checked_copy(input: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    check_input("copy", input)
    if dtype is not None and dtype not in FLOATS:
        expected = ", ".join(str(known) for known in FLOATS)
        raise TypeError(f"copy: argument 'dtype' expects {expected}, got {dtype}")
    return dtype or input.dtype


def _copy_into(output: torch.Tensor, input: torch.Tensor) -> None:
    """Elements of one tensor into another of the same shape, whatever their strides and dtypes."""
    if output.numel() == 0:
        return
    dtypes = f"{SUFFIXES[input.dtype]}_{SUFFIXES[output.dtype]}"
    order = memory_order(output)
    if common_split(input, output) is not None:
        launch_map(_copy, "copy", as_rows(input, output), kinds=dtypes)
        return
    variants.record("copy", input.dtype, "strided", 1)
    kernel = _copy.kernels.kernel(f"copy_strided_{dtypes}", input.device)
    dimensions = [
        number
        for i in reversed(order)
        for number in (input.shape[i], input.stride(i), output.stride(i))
    ]
    group_size = choice_for(_copy, input, "elementwise").group_size
    count = output.numel()
    kernel(input, output, len(order), dimensions, threads=count, group_size=min(count, group_size))


def _keep_dtype(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.dtypes = inputs[0].dtype, output.dtype


def _copy_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    before, after = ctx.dtypes
    return (grad if before == after else _copy(grad, before)), None


_copy.gradient(_keep_dtype, _copy_gradient)


def _copy_over(input: torch.Tensor, source: torch.Tensor) -> None:
    check_input("copy_", input)
    check_dtype("copy_", "source", source, FLOATS)
    check_size("copy_", "source", source)
    check_writable("copy_", "input", input)
    if source.device != input.device:
        raise ValueError(
            f"copy_: argument 'source' is on {source.device}, but 'input' is on {input.device}."
            f" Move it with .to({str(input.device)!r})"
        )
    try:
        spread = source.expand_as(input)
    except RuntimeError:
        raise ValueError(
            f"copy_: argument 'source' of shape {list(source.shape)} cannot be spread over 'input'"
            f" of shape {list(input.shape)}"
        ) from None
    _copy_into(input, spread)


def _copy_over_gradient(grad: torch.Tensor, kept: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    source = args[1]
    whole = grad.sum_to_size(source.shape)
    return torch.zeros_like(grad), whole if source.dtype == grad.dtype else _copy(
        whole, source.dtype
    )


# --- in place, and the public functions -----------------------------------------------------------

fill_ = InPlace(
    "fill_(Tensor(a!) input, Scalar value) -> ()",
    run=_fill_over,
    gradient=lambda grad, kept, args: (torch.zeros_like(grad), None),
)
_axpy_in_place = InPlace(
    "axpy_(Tensor(a!) y, Scalar alpha, Tensor x) -> ()",
    run=_axpy_over,
    gradient=lambda grad, kept, args: (grad, None, _axpy_backward(grad, args[1])),
)
copy_ = InPlace(
    "copy_(Tensor(a!) input, Tensor source) -> ()",
    run=_copy_over,
    gradient=_copy_over_gradient,
)


def fill(input: torch.Tensor, value: Number) -> torch.Tensor:
    """A tensor like `input`, full of `value`, as torch.fill. `fill_` writes over its input."""
    result: torch.Tensor = _fill(input, value)
    return result


def axpy(alpha: Number, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """alpha * x + y, rounded once."""
    result: torch.Tensor = _axpy(alpha, x, y)
    return result


def axpy_(alpha: Number, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """alpha * x + y, written over `y`, as BLAS does."""
    return _axpy_in_place(y, alpha, x)


def copy(input: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A copy of a tensor, as torch.clone, or converted to `dtype` on the way."""
    result: torch.Tensor = _copy(input, dtype)
    return result
