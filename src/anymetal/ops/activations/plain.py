"""Activations of one tensor: silu, gelu, relu squared and sigmoid, also in place."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F

from anymetal.ops.declare import Cost, Operator, operator
from anymetal.ops.declare.cases import element_cases, random_case
from anymetal.ops.declare.checks import check_input, check_pair, check_writable
from anymetal.ops.declare.elementwise import launch_map
from anymetal.ops.declare.layout import as_rows, common_split

SOURCE = "elementwise.metal"
APPROXIMATIONS = ("none", "tanh")
Tensor = torch.Tensor
Function = TypeVar("Function", bound=Callable[..., Any])

# Nothing, one element, around a simdgroup, a prime, and several dimensions.
_SHAPES = ((0,), (), (1,), (31,), (32,), (33,), (4099,), (2, 3, 64))


@dataclass(frozen=True)
class Activation:
    """A function of one value; `has_tanh` says that `approximate` chooses between two kernels."""

    name: str
    reference: Callable[..., Tensor]
    naive: Callable[..., Tensor]
    has_tanh: bool = False

    def kernel(self, operator: str, approximate: str) -> str:
        """A kernel's name without its width and dtype."""
        if approximate not in APPROXIMATIONS:
            raise ValueError(
                f"{operator}: argument 'approximate' expects 'none' or 'tanh', got {approximate!r}"
            )
        return f"{operator}_{approximate}" if self.has_tanh else operator

    def option(self, function: Function) -> Function:
        """A function that declares an operator, without `approximate` where there is no choice."""
        if not self.has_tanh:
            signature = inspect.signature(function)
            kept = [p for p in signature.parameters.values() if p.name != "approximate"]
            function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return function


def _gelu_composition(input: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
        return 0.5 * input * (1 + torch.tanh(inner))
    return 0.5 * input * (1 + torch.erf(input / math.sqrt(2)))


def _gelu_reference(input: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(input, approximate=approximate)


SILU = Activation("silu", F.silu, lambda input: input * torch.sigmoid(input))
GELU = Activation("gelu", _gelu_reference, _gelu_composition, has_tanh=True)
RELU_SQUARED = Activation(
    "relu_squared",
    lambda input: F.relu(input).square(),
    lambda input: torch.clamp(input, min=0) ** 2,
)
SIGMOID = Activation("sigmoid", torch.sigmoid, lambda input: 1 / (1 + torch.exp(-input)))


def _declare(activation: Activation, *, from_output: bool = False) -> Operator[..., Tensor]:
    """An activation and its gradient, made of the input, or of the output."""
    name = activation.name
    cases = [random_case(shape) for shape in _SHAPES]
    if activation.has_tanh:
        cases.append(random_case((4099,), approximate="tanh"))

    @operator(
        name=name,
        source=SOURCE,
        reference=activation.reference,
        cases=cases,
        bench=element_cases(1),
        naive=activation.naive,
        cost=lambda input, **_: Cost(read=input.nbytes, write=input.nbytes),
        twice=True,
    )
    @activation.option
    def forward(input: Tensor, approximate: str = "none") -> Tensor:
        check_input(name, input)
        activation.kernel(name, approximate)
        return torch.empty_like(input)

    @forward.run
    def _(output: Tensor, input: Tensor, approximate: str = "none") -> None:
        launch_map(forward, activation.kernel(name, approximate), as_rows(input, output))

    def room(grad: Tensor, kept: Tensor, kept_name: str) -> Tensor:
        check_pair(f"{name}_backward", kept_name, kept, "grad", grad)
        return torch.empty_like(kept)

    @activation.option
    def of_input(grad: Tensor, input: Tensor, approximate: str = "none") -> Tensor:
        return room(grad, input, "input")

    def of_output(grad: Tensor, output: Tensor) -> Tensor:
        return room(grad, output, "output")

    backward = forward.gradient(
        name=f"{name}_backward",
        reference=_sigmoid_gradient if from_output else None,
        cost=lambda grad, kept, **_: Cost(read=grad.nbytes + kept.nbytes, write=kept.nbytes),
    )(of_output if from_output else of_input)

    @backward.run
    def _(result: Tensor, grad: Tensor, kept: Tensor, approximate: str = "none") -> None:
        kernel = f"{activation.kernel(name, approximate)}_backward"
        launch_map(backward, kernel, as_rows(grad, kept, result))

    return forward


def _sigmoid_gradient(grad: Tensor, output: Tensor) -> Tensor:
    return grad * output * (1 - output)


_silu = _declare(SILU)
_gelu = _declare(GELU)
_relu_squared = _declare(RELU_SQUARED)
_sigmoid = _declare(SIGMOID, from_output=True)


# --- in place -------------------------------------------------------------------------------------


def _declare_in_place(forward: Operator[..., Tensor]) -> Operator[[Tensor], Tensor]:
    """The activation written over its input."""
    name = f"{forward.name}_"

    @operator(
        name=name,
        source=SOURCE,
        reference=lambda input: input.copy_(forward.reference(input.clone())),
        functional=forward,
        cases=[random_case(shape) for shape in _SHAPES],
        mutates=["input"],
        cost=forward.cost,
    )
    def in_place(input: Tensor) -> Tensor:
        """The activation, written over its input."""
        check_input(name, input)
        check_writable(name, "input", input)
        return input

    @in_place.run
    def _(input: Tensor) -> None:
        if common_split(input) is not None:
            launch_map(forward, forward.name, as_rows(input, input))
        else:  # elements that lie scattered go by a copy
            input.copy_(forward(input))

    return in_place


_silu_ = _declare_in_place(_silu)
sigmoid_ = _declare_in_place(_sigmoid)


# --- the public functions -------------------------------------------------------------------------


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x), as torch.nn.functional.silu."""
    return _silu_(input) if inplace else _silu(input)


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x, as torch.nn.functional.gelu.

    The exact form keeps its digits for negative inputs, where 1 + erf has none left.
    """
    return _gelu(input, approximate)


def relu_squared(input: Tensor) -> Tensor:
    """relu(x) squared."""
    return _relu_squared(input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), as torch.sigmoid. `sigmoid_` writes over its input."""
    return _sigmoid(input)
