"""Activations and gated products: silu, gelu, relu squared, sigmoid, with a bias, with a gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)

from anymetal.launch.policy import choose
from anymetal.ops import variants
from anymetal.ops.cases import random_case
from anymetal.ops.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare import FLOATS, Cost, Operator
from anymetal.ops.in_place import InPlace
from anymetal.ops.layout import Rows, as_rows, group_shape, last_dimension_rows, row_stride

SOURCE = "elementwise.metal"
APPROXIMATIONS = ("none", "tanh")
Function = Callable[..., Any]

# 0, 1, around a simdgroup, a prime, a tensor of several threadgroups, several dimensions.
_SHAPES = ((0,), (1,), (31,), (32,), (33,), (4099,), (2, 3, 64))
_ROWS = ((0, 5), (1, 1), (3, 31), (5, 32), (2, 2, 33), (300, 4), (1, 4099))


# --- one launch over rows -------------------------------------------------------------------------


def launch_map(operator: Operator, kernel: str, rows: Rows) -> None:
    """Runs a kernel over elements: `rows.tensors` are its buffers, in order."""
    if rows.rows == 0 or rows.columns == 0:
        return
    width, first = rows.width(), rows.tensors[0]
    variants.record(operator.name, first.dtype, "elementwise", width)
    threads = (-(-rows.columns // width), rows.rows)
    operator.kernel(f"{kernel}_{_form(width)}", first)(
        *rows.tensors,
        rows.columns,
        list(rows.strides),
        threads=threads,
        group_size=group_shape(threads, _group_size(operator, first, "elementwise")),
    )


def _form(width: int) -> str:
    return "scalar" if width == 1 else f"vec{width}"


def _group_size(operator: Operator, tensor: torch.Tensor, strategy: str) -> int:
    return _choice(operator, tensor, strategy).group_size


def _choice(operator: Operator, tensor: torch.Tensor, strategy: str) -> Any:
    return choose(
        operator=operator.name,
        dtype=variants.DTYPE_NAMES[tensor.dtype],
        shape_class="any",
        device=tensor.device.type,
        strategy=strategy,
    )


def _check_input(name: str, tensor: torch.Tensor, argument: str = "input") -> None:
    check_dtype(name, argument, tensor, FLOATS)
    check_size(name, argument, tensor)


def _check_approximate(name: str, approximate: str) -> None:
    if approximate not in APPROXIMATIONS:
        raise ValueError(
            f"{name}: argument 'approximate' expects 'none' or 'tanh', got {approximate!r}"
        )


def _check_pair(name: str, first: str, a: torch.Tensor, second: str, b: torch.Tensor) -> None:
    _check_input(name, a, first)
    check_like(name, second, b, first, a)
    check_shape(name, second, b, a.shape, f"that of '{first}'")


# --- functions of one tensor ----------------------------------------------------------------------


def _gradient_of(function: Function) -> Function:
    """A function's gradient by torch's autograd: the reference of a backward operator."""

    def reference(grad: torch.Tensor, *inputs: Any) -> Any:
        with torch.enable_grad():
            leaves = [
                x.detach().requires_grad_() if isinstance(x, torch.Tensor) else x for x in inputs
            ]
            wanted = [x for x in leaves if isinstance(x, torch.Tensor)]
            results = torch.autograd.grad(function(*leaves), wanted, grad)
        return results[0] if len(results) == 1 else results

    return reference


def _one_read(input: torch.Tensor, *rest: Any) -> Cost:
    del rest
    return Cost(read=input.nbytes, write=input.nbytes)


def _two_reads(a: torch.Tensor, b: torch.Tensor, *rest: Any) -> Cost:
    del rest
    return Cost(read=a.nbytes + b.nbytes, write=a.nbytes)


def _relu_squared(input: torch.Tensor) -> torch.Tensor:
    return F.relu(input).square()


def _activation(name: str, reference: Function) -> tuple[Operator, Operator]:
    """An operator of one tensor whose gradient needs its input, and that gradient."""
    forward = Operator(
        f"{name}(Tensor input) -> Tensor",
        SOURCE,
        reference,
        cases=[random_case(shape) for shape in _SHAPES],
        cost=_one_read,
    )
    backward = Operator(
        f"{name}_backward(Tensor grad, Tensor input) -> Tensor",
        SOURCE,
        _gradient_of(reference),
        cases=[random_case(shape, shape) for shape in _SHAPES[:4]],
        cost=_two_reads,
        differentiable=False,
    )

    @forward.forward
    def _(input: torch.Tensor) -> torch.Tensor:
        _check_input(name, input)
        output = torch.empty_like(input)
        launch_map(forward, name, as_rows(input, output))
        return output

    @forward.fake
    def _(input: torch.Tensor) -> torch.Tensor:
        _check_input(name, input)
        return torch.empty_like(input)

    @backward.forward
    def _(grad: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
        _check_pair(backward.name, "input", input, "grad", grad)
        output = torch.empty_like(input)
        launch_map(backward, backward.name, as_rows(grad, input, output))
        return output

    @backward.fake
    def _(grad: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(input)

    backward.no_gradient(f"{name} can be differentiated once")
    return forward, backward


def _keep_input(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    ctx.save_for_backward(inputs[0])


silu_operator, silu_backward = _activation("silu", F.silu)
relu_squared_operator, relu_squared_backward = _activation("relu_squared", _relu_squared)
sigmoid_operator, sigmoid_backward = _activation("sigmoid", torch.sigmoid)

silu_operator.gradient(_keep_input, lambda ctx, grad: silu_backward(grad, *ctx.saved_tensors))
relu_squared_operator.gradient(
    _keep_input, lambda ctx, grad: relu_squared_backward(grad, *ctx.saved_tensors)
)
