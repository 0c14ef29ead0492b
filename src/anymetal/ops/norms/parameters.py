"""What all norms share: their parameters, and the reference of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from anymetal.ops.declare import AnyOperator, Call, Gradients
from anymetal.ops.declare.checks import check_input, check_like, check_shape
from anymetal.ops.norms.rows import DenseRows, Gradient

# torch takes the epsilon of the type it computes in, which is float32 for half and bfloat16 too.
RMS_EPS = torch.finfo(torch.float32).eps
LAYER_EPS = 1e-5

Tensor = torch.Tensor
Optional = torch.Tensor | None


def check_parameters(
    name: str, input: Tensor, shape: Sequence[int], why: str, weight: Optional, bias: Optional
) -> None:
    for argument, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            check_like(name, argument, parameter, "input", input)
            check_shape(name, argument, parameter, shape, why)


def check_gradients(name: str, input: Tensor, **gradients: Optional) -> None:
    check_input(name, input)
    for argument, tensor in gradients.items():
        if tensor is not None:
            check_like(name, argument, tensor, "input", input)
            check_shape(name, argument, tensor, input.shape, "that of 'input'")


def dense(parameter: Optional) -> Optional:
    """A weight or bias as kernels read it."""
    return None if parameter is None else parameter.contiguous()


def dense_like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def room_for_gradients(
    input: Tensor, weight: Optional, bias: Optional, parameters: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients of input, weight and bias; none where they are not asked for."""
    given = [p if parameters else None for p in (weight, bias)]
    first, second = (input.new_empty(0) if p is None else dense_like(p) for p in given)
    return dense_like(input), first, second


def fill_parameters(
    fill: Callable[[list[Tensor], DenseRows, DenseRows, Gradient], None],
    gradients: tuple[Tensor, Tensor],
    given: tuple[Optional, Optional],
    inputs: tuple[DenseRows, DenseRows, Gradient],
) -> None:
    """Fills the gradients of the parameters that are there, by one of Norm's methods.

    Kernels take the weight's first, so a bias alone needs room for one of a weight too.
    """
    weight, bias = gradients
    if not inputs[0].tensor.numel():
        weight.zero_()
        bias.zero_()
        return
    first = torch.empty_like(bias) if given[0] is None else weight
    fill([first] if given[1] is None else [first, bias], *inputs)


def differentiate(
    forward: AnyOperator, backward: AnyOperator, kept: str, options: Sequence[str]
) -> None:
    """The gradients of a norm, by its backward operator, made of the tensor that `kept` names."""

    @forward.backward(keep=[kept, "weight", "bias"])
    def _(call: Call, grad: Optional, grad_sum: Optional = None) -> Gradients:
        if grad is None:  # only the sum was used, or nothing
            return {name: grad_sum for name in forward.names if name in ("input", "residual")}
        values = {name: getattr(call, name) for name in options}
        wanted = call.needs("weight", "bias")
        extra = {"grad_sum": grad_sum} if "grad_sum" in backward.names else {}
        dx, weight, bias = backward(
            grad, **extra, input=getattr(call, kept), **values, parameters=wanted
        )
        found = {"input": dx, "residual": dx, "weight": weight, "bias": bias}
        return {name: value for name, value in found.items() if call.needs(name)}


def gradients_of(
    function: Callable[..., Tensor],
    grad: Tensor,
    given: tuple[Tensor, Optional, Optional],
    parameters: bool,
) -> tuple[Tensor, ...]:
    """The gradients of `function(input, weight, bias)` by torch: a backward's reference."""
    present = [i for i, tensor in enumerate(given) if tensor is not None]

    def of_present(*tensors: Tensor) -> Tensor:
        return function(*(tensors[present.index(i)] if i in present else None for i in range(3)))

    found = torch.func.vjp(of_present, *(given[i] for i in present))[1](grad)
    results = [grad.new_empty(0)] * 3
    for i, gradient in zip(present, found, strict=True):
        if i == 0 or parameters:
            results[i] = gradient
    return tuple(results)
