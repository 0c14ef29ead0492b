"""group_norm: the channels of a sample in groups, each group with its places one row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare.declare import FLOATS, Case, Cost, Operator
from anymetal.ops.norms.norm import LAYER_EPS, blank_gradient, dense
from anymetal.ops.norms.norm_rows import BACKWARD_SOURCE, FORWARD_SOURCE, Norm, Rows

Tensor = torch.Tensor
Optional = torch.Tensor | None

_OPTIONS = f"Tensor? weight=None, Tensor? bias=None, float eps={LAYER_EPS}"
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


@dataclass(frozen=True)
class Call:
    """The arguments of group_norm."""

    input: Tensor
    num_groups: int
    weight: Optional = None
    bias: Optional = None
    eps: float = LAYER_EPS

    @property
    def channels(self) -> int:
        return self.input.shape[1]

    def norm(self, operator: Operator) -> Norm:
        places = math.prod(self.input.shape[2:])
        return Norm(
            operator,
            "layer_norm",
            self.input.shape[0] * self.num_groups,
            self.channels // self.num_groups * places,
            float(self.eps),
            spatial=max(places, 1),
            groups=self.num_groups,
        )


def _reference(*args: Any, **kwargs: Any) -> Tensor:
    call = Call(*args, **kwargs)
    return F.group_norm(call.input, call.num_groups, call.weight, call.bias, call.eps)


def _reference_backward(grad: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    wanted = kwargs.pop("parameters", True)
    call = Call(*args, **kwargs)
    with torch.enable_grad():
        leaves = [
            None if t is None else t.detach().requires_grad_()
            for t in (call.input, call.weight, call.bias)
        ]
        result = _reference(leaves[0], call.num_groups, leaves[1], leaves[2], call.eps)
        found = iter(torch.autograd.grad(result, [t for t in leaves if t is not None], grad))
    results = [grad.new_empty(0) if t is None else next(found) for t in leaves]
    return tuple(results if wanted else [results[0], grad.new_empty(0), grad.new_empty(0)])


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


def _cost(input: Tensor, *_: Any, **__: Any) -> Cost:
    return Cost(read=input.nbytes, write=input.nbytes)


def _backward_cost(grad: Tensor, input: Tensor, *_: Any, **__: Any) -> Cost:
    return Cost(read=grad.nbytes + input.nbytes, write=input.nbytes)


group_norm_operator = Operator(
    f"group_norm(Tensor input, int num_groups, {_OPTIONS}) -> Tensor",
    FORWARD_SOURCE,
    _reference,
    cases=[*(_case(*shape) for shape in _SHAPES), _case((2, 4, 9), 2, parameters=False)],
    bench=[_case(*shape) for shape in _BENCH],
    cost=_cost,
)
group_norm_backward = Operator(
    f"group_norm_backward(Tensor grad, Tensor input, int num_groups, {_OPTIONS},"
    " bool parameters=True) -> (Tensor, Tensor, Tensor)",
    BACKWARD_SOURCE,
    _reference_backward,
    cases=[_case(*shape, gradient=True) for shape in _SHAPES],
    bench=[_case(*shape, gradient=True) for shape in _BENCH],
    cost=_backward_cost,
    differentiable=False,
)


def _check(name: str, call: Call) -> None:
    check_dtype(name, "input", call.input, FLOATS)
    check_size(name, "input", call.input)
    shape = list(call.input.shape)
    if len(shape) < 2:
        raise ValueError(
            f"{name}: argument 'input' expects at least two dimensions, samples and channels; got"
            f" shape {shape}"
        )
    if call.num_groups < 1 or shape[1] % call.num_groups:
        raise ValueError(
            f"{name}: argument 'num_groups' expects a divisor of the channels of 'input', which has"
            f" {shape[1]} (shape {shape}); got {call.num_groups}"
        )
    for argument, parameter in (("weight", call.weight), ("bias", call.bias)):
        if parameter is not None:
            check_like(name, argument, parameter, "input", call.input)
            check_shape(name, argument, parameter, [shape[1]], "the channels of 'input'")


@group_norm_operator.forward
def _(*args: Any, **kwargs: Any) -> Tensor:
    call = Call(*args, **kwargs)
    _check("group_norm", call)
    norm = call.norm(group_norm_operator)
    x = Rows(call.input.contiguous(), norm.columns)
    return norm.normalise(x, dense(call.weight), dense(call.bias))[0]


@group_norm_operator.fake
def _(*args: Any, **kwargs: Any) -> Tensor:
    call = Call(*args, **kwargs)
    _check("group_norm", call)
    return torch.empty_like(call.input, memory_format=torch.contiguous_format)


@group_norm_backward.forward
def _(
    grad: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = LAYER_EPS,
    parameters: bool = True,
) -> tuple[Tensor, ...]:
    call = Call(input, num_groups, weight, bias, eps)
    name = group_norm_backward.name
    _check(name, call)
    check_like(name, "grad", grad, "input", input)
    check_shape(name, "grad", grad, input.shape, "that of 'input'")
    norm = call.norm(group_norm_backward)
    x, dy = (Rows(tensor.contiguous(), norm.columns) for tensor in (input, grad))
    found = norm.gradient(dy, None, x, dense(weight), bias is not None, sums=False)
    results = [blank_gradient(p, found.x, parameters) for p in (weight, bias)]
    if parameters and (weight is not None or bias is not None):
        sums = norm.channel_gradients(dy, x, found, call.channels, bias is not None)
        given = zip(results, (weight, bias), sums, strict=True)
        results = [blank if p is None else total for blank, p, total in given]
    return (found.x, *results)


@group_norm_backward.fake
def _(
    grad: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = LAYER_EPS,
    parameters: bool = True,
) -> tuple[Tensor, ...]:
    del grad, num_groups, eps
    dx = torch.empty_like(input, memory_format=torch.contiguous_format)
    return (dx, *(blank_gradient(p, dx, parameters) for p in (weight, bias)))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    call = Call(*inputs)
    ctx.save_for_backward(call.input, call.weight, call.bias)
    ctx.num_groups, ctx.eps = call.num_groups, call.eps
    ctx.parameters = any(p is not None and p.requires_grad for p in (call.weight, call.bias))


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    input, weight, bias = ctx.saved_tensors
    dx, *found = group_norm_backward(
        grad, input, ctx.num_groups, weight, bias, ctx.eps, ctx.parameters
    )
    given = zip(found, (weight, bias), strict=True)
    used = [g if p is not None and ctx.parameters else None for g, p in given]
    return (dx, None, *used, None)


group_norm_operator.gradient(_setup, _gradient)
group_norm_backward.without_gradient("group_norm can be differentiated once")


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = LAYER_EPS,
) -> Tensor:
    """Each of `num_groups` groups of channels normalised, times a weight a channel, plus a bias."""
    result: Tensor = group_norm_operator(input, num_groups, weight, bias, eps)
    return result
