"""group_norm: the channels of a sample in groups, each group with its places one row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare import (
    AnyOperator,
    Autocast,
    Call,
    Case,
    Cost,
    Gradients,
    operator,
)
from anymetal.ops.declare.checks import check_input
from anymetal.ops.norms.parameters import (
    LAYER_EPS,
    check_gradients,
    check_parameters,
    dense,
    dense_like,
    differentiate,
    fill_parameters,
    gradients_of,
    room_for_gradients,
)
from anymetal.ops.norms.rows import DenseRows, Norm, Sizes

Tensor = torch.Tensor

# Nothing; one place a channel; places that divide by four and that do not; rows of each strategy.
_SHAPES = (
    ((0, 4, 3), 2),
    ((3, 6), 2),
    ((2, 4, 31), 4),
    ((2, 6, 4, 8), 3),
    ((1, 8, 5, 33), 2),
    ((2, 2, 4099), 1),
)
_BENCH = (((8, 64, 32, 32), 8), ((2, 320, 64, 64), 32))


def _norm(
    operator: AnyOperator, input: Tensor, num_groups: int, eps: float, kind: str = "group_norm"
) -> Norm:
    places = math.prod(input.shape[2:])
    sizes = Sizes(
        rows=input.shape[0] * num_groups,
        columns=input.shape[1] // num_groups * places,
        eps=float(eps),
        spatial=max(places, 1),
        groups=num_groups,
    )
    return Norm(operator, kind, sizes)


def _check(
    name: str, input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None
) -> None:
    check_input(name, input)
    shape = list(input.shape)
    if len(shape) < 2:
        raise ValueError(
            f"{name}: argument 'input' expects at least two dimensions, samples and channels; got"
            f" shape {shape}"
        )
    if num_groups < 1 or shape[1] % num_groups:
        raise ValueError(
            f"{name}: argument 'num_groups' expects a divisor of the channels of 'input', which has"
            f" {shape[1]} (shape {shape}); got {num_groups}"
        )
    check_parameters(name, input, [shape[1]], "the channels of 'input'", weight, bias)


def _case(shape: tuple[int, ...], groups: int, *, gradient: bool = False, **options: Any) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(size: Sequence[int]) -> Tensor:
            return torch.randn(list(size), generator=generator).to(dtype).to(device)

        x, grad = random(shape), random(shape)
        parameters = [random(shape[1:2]), random(shape[1:2])]
        args = [x, groups, *parameters] if options.get("parameters", True) else [x, groups]
        return [grad, *args] if gradient else args, {}

    words = ["x".join(map(str, shape)), f"groups={groups}"]
    return Case(" ".join(words + [f"{name}={value}" for name, value in options.items()]), make)


@operator(
    source="norm.metal",
    reference=F.group_norm,
    cases=[*(_case(*shape) for shape in _SHAPES), _case((2, 4, 9), 2, parameters=False)],
    bench=[_case(*shape) for shape in _BENCH],
    cost=lambda input, *_, **__: Cost(read=input.nbytes, write=input.nbytes),
    mixed="first",
    autocast=Autocast("float32", like="group_norm"),
)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
) -> Tensor:
    """Each of `num_groups` groups of channels normalised, times a weight a channel, plus a bias."""
    _check("group_norm", input, num_groups, weight, bias)
    return dense_like(input)


@group_norm.run
def _(
    y: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
) -> None:
    norm = _norm(group_norm, input, num_groups, eps)
    x = DenseRows(input.contiguous(), norm.sizes.columns)
    norm.normalise(y, None, x, None, dense(weight), dense(bias))


def _reference_backward(
    grad: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
    parameters: bool = True,
) -> tuple[Tensor, ...]:
    def function(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return F.group_norm(input, num_groups, weight, bias, eps)

    return gradients_of(function, grad, (input, weight, bias), parameters)


@operator(
    source="norm_backward.metal",
    reference=_reference_backward,
    cases=[_case(*shape, gradient=True) for shape in _SHAPES],
    bench=[_case(*shape, gradient=True) for shape in _BENCH],
    cost=lambda grad, input, *_, **__: Cost(grad.nbytes + input.nbytes, input.nbytes),
)
def group_norm_backward(
    grad: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
    parameters: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    check_gradients("group_norm_backward", input, grad=grad)
    _check("group_norm_backward", input, num_groups, weight, bias)
    return room_for_gradients(input, weight, bias, parameters)


@group_norm_backward.run
def _(
    gradients: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
    parameters: bool = True,
) -> None:
    norm = _norm(group_norm_backward, input, num_groups, eps)
    x, dy = (DenseRows(tensor.contiguous(), norm.sizes.columns) for tensor in (input, grad))
    has_bias = bias is not None
    found = norm.gradient(gradients[0], dy, None, x, dense(weight), has_bias=has_bias, sums=False)
    if parameters and not (weight is None and bias is None):
        inputs = (dy, x, found)
        fill_parameters(norm.channel_gradients, gradients[1:], (weight, bias), inputs)


group_norm_backward.differentiate_by_reference()
differentiate(group_norm, group_norm_backward, "input", ("num_groups", "weight", "bias", "eps"))


# --- with SiLU behind it --------------------------------------------------------------------------


def _reference_silu(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
) -> Tensor:
    return F.silu(F.group_norm(input, num_groups, weight, bias, eps))


@operator(
    source="norm.metal",
    reference=_reference_silu,
    cases=[*(_case(*shape) for shape in _SHAPES), _case((2, 4, 9), 2, parameters=False)],
    bench=[_case(*shape) for shape in _BENCH],
    cost=lambda input, *_, **__: Cost(read=input.nbytes, write=input.nbytes),
    mixed="first",
    autocast=Autocast("float32", like="group_norm"),
    again=True,
)
def group_norm_silu(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
) -> Tensor:
    """silu(group_norm(...)) in one pass: what convolutions of image models are given."""
    _check("group_norm_silu", input, num_groups, weight, bias)
    return dense_like(input)


@group_norm_silu.run
def _(
    y: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = LAYER_EPS,
) -> None:
    norm = _norm(group_norm_silu, input, num_groups, eps, "group_norm_silu")
    x = DenseRows(input.contiguous(), norm.sizes.columns)
    norm.normalise(y, None, x, None, dense(weight), dense(bias))


@group_norm_silu.backward(keep=["input", "weight", "bias"])
def _(call: Call, grad: Tensor) -> Gradients:
    """The norm is computed again: to keep it would take as much memory as the result."""
    norm = group_norm(call.input, call.num_groups, call.weight, call.bias, call.eps)
    inner = torch.ops.anymetal.silu_backward(grad, norm)
    dx, weight, bias = group_norm_backward(
        inner, call.input, call.num_groups, call.weight, call.bias, call.eps,
        call.needs("weight", "bias"),
    )  # fmt: skip
    found = {"input": dx, "weight": weight, "bias": bias}
    return {name: value for name, value in found.items() if call.needs(name)}
