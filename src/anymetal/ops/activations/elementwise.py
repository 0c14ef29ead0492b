"""Activations of one tensor: silu, gelu, relu squared and sigmoid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare import variants
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.checks import (
    check_dtype,
    check_like,
    check_shape,
    check_size,
    check_writable,
)
from anymetal.ops.declare.declare import FLOATS, Cost, Operator
from anymetal.ops.declare.in_place import InPlace
from anymetal.ops.declare.layout import Rows, as_rows, common_split, group_shape
from anymetal.policy.policy import Choice, choose

SOURCE = "activations/elementwise.metal"
APPROXIMATIONS = ("none", "tanh")
Function = Callable[..., Any]

# Nothing, one element, around a simdgroup, a prime, and several dimensions.
_SHAPES = ((0,), (), (1,), (31,), (32,), (33,), (4099,), (2, 3, 64))


# --- what all operators over elements share -------------------------------------------------------


def launch_map(
    operator: Operator, kernel: str, rows: Rows, *numbers: float, kinds: str | None = None
) -> None:
    """Runs a kernel over elements: `rows.tensors` are its first buffers, `numbers` its last.

    The kernel's name ends in the dtype of the tensors, or in `kinds` where they differ.
    """
    if rows.rows == 0 or rows.columns == 0:
        return
    width, first = rows.width(), rows.tensors[0]
    variants.record(operator.name, first.dtype, "elementwise", width)
    threads = (-(-rows.columns // width), rows.rows)
    name = f"{kernel}_{form(width)}_{kinds or operator.suffix(first)}"
    operator.kernels.kernel(name, first.device)(
        *rows.tensors,
        rows.columns,
        list(rows.strides),
        *numbers,
        threads=threads,
        group_size=group_shape(threads, choice_for(operator, first, "elementwise").group_size),
    )


def form(width: int) -> str:
    """The part of a kernel's name that says how many elements it takes at once."""
    return "scalar" if width == 1 else f"vec{width}"


def choice_for(operator: Operator, tensor: torch.Tensor, strategy: str) -> Choice:
    """The policy's answer for an operator whose launch depends on no shape."""
    return choose(
        operator=operator.name,
        dtype=variants.DTYPE_NAMES[tensor.dtype],
        shape_class="any",
        device=tensor.device.type,
        strategy=strategy,
    )


def check_input(name: str, tensor: torch.Tensor, argument: str = "input") -> None:
    check_dtype(name, argument, tensor, FLOATS)
    check_size(name, argument, tensor)


def check_pair(name: str, first: str, a: torch.Tensor, second: str, b: torch.Tensor) -> None:
    """Two tensors that must be alike in dtype, device and shape."""
    check_input(name, a, first)
    check_like(name, second, b, first, a)
    check_shape(name, second, b, a.shape, f"that of '{first}'")


def check_approximate(name: str, approximate: str) -> None:
    if approximate not in APPROXIMATIONS:
        raise ValueError(
            f"{name}: argument 'approximate' expects 'none' or 'tanh', got {approximate!r}"
        )


def gradient_of(function: Function) -> Function:
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


# --- activations ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Activation:
    """A function of one tensor, declared as an operator and its gradient.

    The gradient is made of the input, or where `from_output` of the result. `approximate` says that
    there are two kernels, `<name>_none` and `<name>_tanh`.
    """

    name: str
    reference: Function
    approximate: bool = False
    from_output: bool = False
    reference_backward: Function | None = None

    def declare(self) -> tuple[Operator, Operator]:
        option = ', str approximate="none"' if self.approximate else ""
        source = "output" if self.from_output else "input"
        forward = Operator(
            f"{self.name}(Tensor input{option}) -> Tensor",
            SOURCE,
            self.reference,
            cases=self._cases(1),
            cost=_forward_cost,
        )
        backward = Operator(
            f"{self.name}_backward(Tensor grad, Tensor {source}{option}) -> Tensor",
            SOURCE,
            self.reference_backward or gradient_of(self.reference),
            cases=self._cases(2),
            cost=_backward_cost,
            differentiable=False,
        )
        self._implement(forward, backward, source)
        self._differentiate(forward, backward)
        return forward, backward

    def kernel(self, approximate: str | None) -> str:
        """The name of the kernel, without its width and dtype."""
        if not self.approximate:
            return self.name
        chosen = approximate or "none"
        check_approximate(self.name, chosen)
        return f"{self.name}_{chosen}"

    def _cases(self, tensors: int) -> list[Any]:
        cases = [random_case(*[shape] * tensors) for shape in _SHAPES]
        if self.approximate:
            cases.append(random_case(*[(4099,)] * tensors, approximate="tanh"))
        return cases

    def _implement(self, forward: Operator, backward: Operator, source: str) -> None:
        @forward.forward
        def _(input: torch.Tensor, approximate: str | None = None) -> torch.Tensor:
            check_input(self.name, input)
            output = torch.empty_like(input)
            launch_map(forward, self.kernel(approximate), as_rows(input, output))
            return output

        @forward.fake
        def _(input: torch.Tensor, approximate: str | None = None) -> torch.Tensor:
            check_input(self.name, input)
            self.kernel(approximate)
            return torch.empty_like(input)

        @backward.forward
        def _(
            grad: torch.Tensor, kept: torch.Tensor, approximate: str | None = None
        ) -> torch.Tensor:
            check_pair(backward.name, source, kept, "grad", grad)
            result = torch.empty_like(kept)
            kernel = f"{self.kernel(approximate)}_backward"
            launch_map(backward, kernel, as_rows(grad, kept, result))
            return result

        @backward.fake
        def _(
            grad: torch.Tensor, kept: torch.Tensor, approximate: str | None = None
        ) -> torch.Tensor:
            return torch.empty_like(kept)

    def _differentiate(self, forward: Operator, backward: Operator) -> None:
        def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            ctx.save_for_backward(output if self.from_output else inputs[0])
            ctx.options = inputs[1:]

        def gradient(ctx: Any, grad: torch.Tensor) -> Any:
            result = backward(grad, *ctx.saved_tensors, *ctx.options)
            return (result, None) if self.approximate else result

        forward.gradient(keep, gradient)
        backward.no_gradient(f"{self.name} can be differentiated once")


def _forward_cost(input: torch.Tensor, **options: Any) -> Cost:
    return Cost(read=input.nbytes, write=input.nbytes)


def _backward_cost(grad: torch.Tensor, kept: torch.Tensor, **options: Any) -> Cost:
    return Cost(read=grad.nbytes + kept.nbytes, write=kept.nbytes)


def _gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return F.gelu(input, approximate=approximate)


def _gelu_backward(
    grad: torch.Tensor, input: torch.Tensor, approximate: str = "none"
) -> torch.Tensor:
    result: torch.Tensor = gradient_of(_gelu)(grad, input, approximate)
    return result


def _relu_squared(input: torch.Tensor) -> torch.Tensor:
    return F.relu(input).square()


def _sigmoid_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return grad * output * (1 - output)


SILU = Activation("silu", F.silu)
GELU = Activation("gelu", _gelu, approximate=True, reference_backward=_gelu_backward)
RELU_SQUARED = Activation("relu_squared", _relu_squared)
SIGMOID = Activation(
    "sigmoid", torch.sigmoid, from_output=True, reference_backward=_sigmoid_backward
)

_silu, _silu_backward = SILU.declare()
_gelu_operator, _ = GELU.declare()
_relu_squared_operator, _ = RELU_SQUARED.declare()
_sigmoid, _sigmoid_backward_operator = SIGMOID.declare()


# --- in place -------------------------------------------------------------------------------------


def _write_over(operator: Operator, tensor: torch.Tensor) -> None:
    """An activation of a tensor into itself; one whose elements lie scattered goes by a copy."""
    check_input(operator.name, tensor)
    check_writable(operator.name, "input", tensor)
    if common_split(tensor) is not None:
        launch_map(operator, operator.name, as_rows(tensor, tensor))
    else:
        tensor.copy_(operator(tensor))


_silu_in_place = InPlace(
    "silu_(Tensor(a!) input) -> ()",
    run=lambda tensor: _write_over(_silu, tensor),
    keep=torch.clone,
    gradient=lambda grad, kept, args: (_silu_backward(grad, kept),),
)
sigmoid_ = InPlace(
    "sigmoid_(Tensor(a!) input) -> ()",
    run=lambda tensor: _write_over(_sigmoid, tensor),
    gradient=lambda grad, kept, args: (_sigmoid_backward_operator(grad, kept),),
)


# --- the public functions -------------------------------------------------------------------------


def silu(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """x * sigmoid(x), as torch.nn.functional.silu."""
    result: torch.Tensor = _silu_in_place(input) if inplace else _silu(input)
    return result


def gelu(input: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """x times the normal distribution function of x, as torch.nn.functional.gelu.

    The exact form keeps its digits for negative inputs, where 1 + erf has none left.
    """
    result: torch.Tensor = _gelu_operator(input, approximate)
    return result


def relu_squared(input: torch.Tensor) -> torch.Tensor:
    """relu(x) squared."""
    result: torch.Tensor = _relu_squared_operator(input)
    return result


def sigmoid(input: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x)), as torch.sigmoid. `sigmoid_` writes over its input."""
    result: torch.Tensor = _sigmoid(input)
    return result
