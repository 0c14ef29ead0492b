"""softmax and log_softmax over any dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from anymetal.ops.declare import (
    FLOATS,
    AnyOperator,
    Autocast,
    Call,
    Case,
    Cost,
    Gradients,
    Operator,
    operator,
    variants,
)
from anymetal.ops.declare.cases import ROWS, random_case
from anymetal.ops.declare.checks import check_input, check_like, check_shape
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import Rows, memory_order, row_stride
from anymetal.ops.declare.rows import launch_reduced

SOURCE = "softmax.metal"
Tensor = torch.Tensor

_LAST = ((0, 5), (3, 1), (2, 31), (3, 32), (2, 3, 33), (2, 251), (3, 2000), (2, 4099), (1, 20000))
_OTHER = (((33, 5), 0), ((2, 31, 3), 1), ((3, 0, 2), 1), ((1000, 2), 0))
_CASES = [random_case(shape, scale=3.0, dim=-1) for shape in _LAST]
_CASES += [random_case(shape, scale=3.0, dim=dim) for shape, dim in _OTHER]
_BENCH = [random_case(shape, dim=-1) for shape in (*ROWS, (2, 1 << 18))]
_BENCH += [random_case((1024, 512), dim=0)]


def _launch(operator: AnyOperator, dim: int, *tensors: Tensor) -> None:
    """Two tensors that are read and one that is written, as rows along `dim`.

    They are walked in the memory order of the last one, a dense one; others are copied where their
    rows do not lie in equal steps.
    """
    order = memory_order(tensors[-1])
    at = order.index(dim) if order else 0
    ordered = [t.permute(order) if order else t.reshape(1) for t in tensors]
    shape = ordered[-1].shape
    outer, inner = math.prod(shape[:at]), math.prod(shape[at + 1 :])
    split = at if inner == 1 else 0
    fitting = tuple(t if row_stride(t, split) is not None else t.contiguous() for t in ordered)
    if inner > 1:
        _launch_columns(operator, fitting, outer, shape[at], inner)
    elif inner == 1:
        strides = tuple(row_stride(t, split) or 0 for t in fitting)
        launch_reduced(operator, operator.name, Rows(fitting, outer, shape[at], strides))


def _launch_columns(
    operator: AnyOperator, tensors: tuple[Tensor, ...], outer: int, length: int, inner: int
) -> None:
    """Rows whose elements lie `inner` apart: threads side by side take rows side by side."""
    if outer == 0 or length == 0:
        return
    first, result = tensors[0], tensors[-1]
    choice = choice_for(operator, first, "columns", "strided")
    variants.record(operator.name, first.dtype, "columns", 1)
    wide = min(choice.values["columns_per_group"], 1 << (inner - 1).bit_length())
    shares = -(-length // choice.values.get("least_elements", 1))
    high = min(choice.group_size // wide, 1 << (shares - 1).bit_length())
    name = f"{operator.name}_columns_{SUFFIXES[first.dtype]}_{SUFFIXES[result.dtype]}"
    operator.kernels.kernel(name, first.device)(
        *tensors,
        {"length": length, "inner": inner},
        threads=(-(-inner // wide) * wide, high, outer),
        group_size=(wide, high, 1),
    )


def _dimension(name: str, tensor: Tensor, dim: int) -> int:
    """The dimension counted from the first."""
    dimensions = max(tensor.dim(), 1)
    if not -dimensions <= dim < dimensions:
        raise IndexError(
            f"{name}: argument 'dim' expects {-dimensions} to {dimensions - 1} for shape"
            f" {list(tensor.shape)}, got {dim}"
        )
    return dim % dimensions


def _result_dtype(name: str, tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None and dtype not in FLOATS:
        expected = ", ".join(str(known) for known in FLOATS)
        raise TypeError(f"{name}: argument 'dtype' expects {expected}, got {dtype}")
    return dtype or tensor.dtype


def _declare(
    name: str,
    reference: Callable[..., Any],
    naive: Callable[..., Tensor],
    reference_backward: Callable[..., Tensor],
) -> Operator[[Tensor, int, torch.dtype | None], Tensor]:
    @operator(
        name=name,
        source=SOURCE,
        reference=reference,
        naive=naive,
        cases=_CASES,
        bench=_BENCH,
        cost=lambda input, **_: Cost(read=input.nbytes, write=input.nbytes),
        autocast=Autocast("float32", like=f"{name}.int"),
        twice=True,
    )
    def forward(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
        check_input(name, input)
        _dimension(name, input, dim)
        return torch.empty_like(input, dtype=_result_dtype(name, input, dtype))

    @forward.run
    def _(output: Tensor, input: Tensor, dim: int, dtype: torch.dtype | None = None) -> None:
        if output.dtype not in (input.dtype, torch.float32):
            input = input.to(output.dtype)  # rounded before the operation, as torch does
        _launch(forward, _dimension(name, input, dim), input, input, output)

    @operator(
        name=f"{name}_backward",
        source=SOURCE,
        reference=reference_backward,
        cases=[_backward_case(*shape_and_dim) for shape_and_dim in _OTHER],
        cost=lambda grad, output, **_: Cost(read=2 * grad.nbytes, write=grad.nbytes),
    )
    def backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
        check_input(backward.name, output, "output")
        _dimension(backward.name, output, dim)
        check_like(backward.name, "grad", grad, "output", output)
        check_shape(backward.name, "grad", grad, output.shape, "that of 'output'")
        return torch.empty_like(output, dtype=_result_dtype(backward.name, output, input_dtype))

    @backward.run
    def _(result: Tensor, grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> None:
        direct = output.dtype in (input_dtype, torch.float32)
        written = result if direct else torch.empty_like(output)
        _launch(backward, _dimension(name, output, dim), grad, output, written)
        if not direct:
            result.copy_(written)

    @forward.backward(keep=["output"])
    def _(call: Call, grad: Tensor) -> Gradients:
        return {"input": backward(grad, call.output, call.dim, call.like("input").dtype)}

    backward.differentiate_by_reference()
    return forward


def _backward_case(shape: tuple[int, ...], dim: int) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        grad, x = (torch.randn(shape, generator=generator) for _ in range(2))
        keywords = {"dim": dim, "input_dtype": dtype}
        return [t.to(dtype).to(device) for t in (grad, torch.softmax(x, dim))], keywords

    return Case(f"{'x'.join(map(str, shape))} dim={dim}", make)


def _softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    result = output * (grad - (grad * output).sum(dim, keepdim=True))
    return result if result.dtype == torch.float64 else result.to(input_dtype)


def _log_softmax_backward(
    grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Tensor:
    result = grad - output.exp() * grad.sum(dim, keepdim=True)
    return result if result.dtype == torch.float64 else result.to(input_dtype)


def _softmax_composition(input: Tensor, dim: int) -> Tensor:
    powers = torch.exp(input - input.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def _log_softmax_composition(input: Tensor, dim: int) -> Tensor:
    shifted = input - input.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


_softmax = _declare("softmax", torch.softmax, _softmax_composition, _softmax_backward)
_log_softmax = _declare(
    "log_softmax", torch.log_softmax, _log_softmax_composition, _log_softmax_backward
)


def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """exp(x) over its sum along `dim`, as torch.softmax; `dtype` is that of the result."""
    return _softmax(input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """The logarithm of softmax along `dim`, as torch.log_softmax; `dtype` is the result's."""
    return _log_softmax(input, dim, dtype)
