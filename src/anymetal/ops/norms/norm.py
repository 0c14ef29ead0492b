"""rms_norm and layer_norm over the last dimensions, also of a sum with a residual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare import (
    AnyOperator,
    Arguments,
    Autocast,
    Case,
    Cost,
    Operator,
    on_call,
    operator,
)
from anymetal.ops.declare.checks import check_input, check_like, check_shape
from anymetal.ops.norms.parameters import (
    LAYER_EPS,
    RMS_EPS,
    check_gradients,
    check_parameters,
    dense,
    dense_like,
    differentiate,
    fill_parameters,
    gradients_of,
    room_for_gradients,
)
from anymetal.ops.norms.rows import Norm, Sizes, rows_of

Tensor = torch.Tensor
Optional = torch.Tensor | None
Shape = int | Sequence[int]

# Rows of several strategies, of one dimension and more; nothing, and (with options) one element.
_SHAPES = (
    ((0, 8), 1),
    ((2, 31), 1),
    ((32,), 1),
    ((2, 2, 33), 1),
    ((3, 2, 16), 2),
    ((2, 1024), 1),
    ((3, 4099), 1),
)
_BENCH = (((1024, 1024), 1), ((256, 4096), 1), ((4, 65536), 1))
_OPTIONS = ("normalized_shape", "weight", "bias", "eps", "weight_offset")


# --- operators ------------------------------------------------------------------------------------


def _check(
    name: str,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional,
    bias: Optional,
    residual: Optional = None,
) -> None:
    check_input(name, input)
    wanted, shape = list(normalized_shape), list(input.shape)
    if not wanted or len(wanted) > len(shape) or shape[len(shape) - len(wanted) :] != wanted:
        raise ValueError(
            f"{name}: argument 'normalized_shape' expects the last dimensions of 'input', whose"
            f" shape is {shape}; got {wanted}"
        )
    if residual is not None:
        check_like(name, "residual", residual, "input", input)
        check_shape(name, "residual", residual, input.shape, "that of 'input'")
    check_parameters(name, input, wanted, "'normalized_shape'", weight, bias)


def _norm(
    operator: AnyOperator,
    kind: str,
    input: Tensor,
    normalized_shape: Sequence[int],
    eps: float | None,
    offset: float,
) -> tuple[Norm, int]:
    """The kernels of a call, and the first dimension that is normalised."""
    split = input.dim() - len(normalized_shape)
    rows, columns = math.prod(input.shape[:split]), math.prod(normalized_shape)
    return Norm(operator, kind, Sizes(rows, columns, _eps(kind, eps), float(offset))), split


def _eps(kind: str, eps: float | None) -> float:
    return float(eps) if eps is not None else {"rms_norm": RMS_EPS, "layer_norm": LAYER_EPS}[kind]


def _declare_backward(kind: str) -> AnyOperator:
    """The gradients of a norm, with another gradient of its input that meets them there."""
    name = f"{kind}_backward"

    @on_call
    def reference(call: Arguments) -> tuple[Tensor, ...]:
        def function(input: Tensor, weight: Optional, bias: Optional) -> Tensor:
            options = (call.normalized_shape, weight, bias, call.eps, call.weight_offset)
            return _reference(kind, input, *options)

        inputs = (call.input, call.weight, call.bias)
        dx, *rest = gradients_of(function, call.grad, inputs, call.parameters)
        return (dx if call.grad_sum is None else dx + call.grad_sum, *rest)

    @operator(
        name=name,
        source="norm_backward.metal",
        reference=reference,
        cases=[_backward_case(kind, *shape) for shape in _SHAPES],
        bench=[_backward_case(kind, *shape) for shape in _BENCH],
        cost=_backward_cost,
    )
    def backward(
        grad: Tensor,
        grad_sum: Tensor | None,
        input: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float | None = None,
        weight_offset: float = 0.0,
        parameters: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:
        check_gradients(name, input, grad=grad, grad_sum=grad_sum)
        _check(name, input, normalized_shape, weight, bias)
        return room_for_gradients(input, weight, bias, parameters)

    @backward.run
    @on_call
    def _(gradients: tuple[Tensor, Tensor, Tensor], call: Arguments) -> None:
        options = (call.normalized_shape, call.eps, call.weight_offset)
        norm, split = _norm(backward, kind, call.input, *options)
        x, dy = rows_of(call.input, split), rows_of(call.grad, split)
        extra = None if call.grad_sum is None else rows_of(call.grad_sum, split)
        parameters = (call.weight, call.bias)
        wanted = call.parameters and any(parameter is not None for parameter in parameters)
        weight, has_bias = dense(call.weight), call.bias is not None
        found = norm.gradient(gradients[0], dy, extra, x, weight, has_bias=has_bias, sums=wanted)
        if wanted:
            fill_parameters(norm.column_gradients, gradients[1:], parameters, (dy, x, found))

    backward.differentiate_by_reference()
    return backward


def _declare(kind: str, backward: AnyOperator) -> Operator[..., Tensor]:
    @operator(
        name=kind,
        source="norm.metal",
        reference=lambda *args, **options: _reference(kind, *args, **options),
        naive=lambda *args, **options: _composition(kind, *args, **options),
        cases=[_case(kind, *shape) for shape in _SHAPES] + _special_cases(kind),
        bench=[_case(kind, *shape) for shape in _BENCH],
        cost=_cost,
        mixed="first",
        autocast=Autocast("float32", like=kind),
    )
    def forward(
        input: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float | None = None,
        weight_offset: float = 0.0,
    ) -> Tensor:
        _check(kind, input, normalized_shape, weight, bias)
        return dense_like(input)

    @forward.run
    def _(
        y: Tensor,
        input: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float | None = None,
        weight_offset: float = 0.0,
    ) -> None:
        norm, split = _norm(forward, kind, input, normalized_shape, eps, weight_offset)
        norm.normalise(y, None, rows_of(input, split), None, dense(weight), dense(bias))

    differentiate(forward, backward, "input", _OPTIONS)
    return forward


def _declare_fused(kind: str, backward: AnyOperator) -> Operator[..., tuple[Tensor, Tensor]]:
    """The norm of a sum with a residual: gives the sum too."""
    name = f"add_{kind}"

    def added(function: Any) -> Any:
        def of_sum(input: Tensor, residual: Tensor, *args: Any, **options: Any) -> Any:
            total = input + residual
            return function(kind, total, *args, **options), total

        return of_sum

    @operator(
        name=name,
        source="norm.metal",
        reference=added(_reference),
        naive=added(_composition),
        results=["output", "sum"],
        cases=[_case(kind, *shape, fused=True) for shape in _SHAPES] + _special_cases(kind, True),
        bench=[_case(kind, *shape, fused=True) for shape in _BENCH],
        cost=_fused_cost,
        mixed="first",
        autocast=Autocast("float32", like=kind),
    )
    def forward(
        input: Tensor,
        residual: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float | None = None,
        weight_offset: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        _check(name, input, normalized_shape, weight, bias, residual)
        return dense_like(input), dense_like(input)

    @forward.run
    def _(
        results: tuple[Tensor, Tensor],
        input: Tensor,
        residual: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float | None = None,
        weight_offset: float = 0.0,
    ) -> None:
        norm, split = _norm(forward, kind, input, normalized_shape, eps, weight_offset)
        both = rows_of(input, split), rows_of(residual, split)
        norm.normalise(*results, *both, dense(weight), dense(bias))

    differentiate(forward, backward, "sum", _OPTIONS)
    return forward


# --- references, cases and costs ------------------------------------------------------------------


def _reference(
    kind: str,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional = None,
    bias: Optional = None,
    eps: float | None = None,
    weight_offset: float = 0.0,
) -> Tensor:
    shape, eps = list(normalized_shape), _eps(kind, eps)
    if weight is not None and weight_offset:
        weight = weight + weight_offset
    if kind == "layer_norm":
        return F.layer_norm(input, shape, weight, bias, eps)
    result = F.rms_norm(input, shape, weight, eps)
    return result if bias is None else result + bias


def _composition(
    kind: str,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional = None,
    bias: Optional = None,
    eps: float | None = None,
    weight_offset: float = 0.0,
) -> Tensor:
    """As models write it: in float32, of one operation at a time."""
    x, dims = input.float(), list(range(-len(normalized_shape), 0))
    if kind == "layer_norm":
        x = x - x.mean(dims, keepdim=True)
    mean = x.square().mean(dims, keepdim=True)
    y = (x * torch.rsqrt(mean + _eps(kind, eps))).to(input.dtype)
    y = y if weight is None else y * (weight + weight_offset)
    return y if bias is None else y + bias


def _case(
    kind: str, shape: tuple[int, ...], dims: int, *, fused: bool = False, **options: Any
) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(size: Sequence[int]) -> Tensor:
            return torch.randn(list(size), generator=generator).to(dtype).to(device)

        last = list(shape[len(shape) - dims :])
        tensors = [random(shape) for _ in range(2 if fused else 1)]
        parameters = [random(last) for _ in range(2 if kind == "layer_norm" else 1)]
        if not options.get("parameters", True):
            return [*tensors, last], {}
        numbers = {k: v for k, v in options.items() if k != "parameters"}
        mean = numbers.pop("mean", 0.0)
        return [tensors[0] + mean, *tensors[1:], last, *parameters], numbers

    words = ["x".join(map(str, shape)), f"over {dims}"]
    words += [f"{name}={value}" for name, value in options.items()]
    return Case(" ".join(words), make)


def _special_cases(kind: str, fused: bool = False) -> list[Case]:
    # The gradient of a single element is what eps leaves of it: without a large one, noise.
    single = _case(kind, (3, 1), 1, fused=fused, eps=1.0)
    plain = _case(kind, (3, 65), 1, fused=fused, parameters=False)
    if kind == "rms_norm":
        return [single, plain, _case(kind, (2, 96), 1, fused=fused, eps=1e-6, weight_offset=1.0)]
    return [single, plain, _case(kind, (2, 257), 1, fused=fused, eps=1e-3, mean=100.0)]


def _backward_case(kind: str, shape: tuple[int, ...], dims: int) -> Case:
    """Every other one with the gradient of a sum."""
    forward, fused = _case(kind, shape, dims, fused=True), len(shape) % 2 == 0

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        (input, residual, *rest), options = forward.make(dtype, device, generator)
        grad = torch.randn(list(shape), generator=generator).to(dtype).to(device)
        return [grad, residual if fused else None, input, *rest], options

    return Case(forward.name, make)


def _cost(
    input: Tensor, *parameters: Any, weight: Optional = None, bias: Optional = None, **_: Any
) -> Cost:
    return Cost(read=input.nbytes + _bytes(weight, bias, *parameters), write=input.nbytes)


def _fused_cost(input: Tensor, residual: Tensor, *parameters: Any, **options: Any) -> Cost:
    plain = _cost(input, *parameters, **options)
    return Cost(read=plain.read + residual.nbytes, write=2 * input.nbytes)


def _backward_cost(
    grad: Tensor,
    grad_sum: Optional = None,
    input: Optional = None,
    *parameters: Any,
    **options: Any,
) -> Cost:
    weights = _bytes(*parameters, options.get("weight"), options.get("bias"))
    written = weights if options.get("parameters", True) else 0
    first = _bytes(*parameters[1:2], options.get("weight"))
    return Cost(read=2 * grad.nbytes + _bytes(grad_sum) + first, write=grad.nbytes + written)


def _bytes(*values: Any) -> int:
    return sum(value.nbytes for value in values if isinstance(value, Tensor))


_rms_norm_backward = _declare_backward("rms_norm")
_layer_norm_backward = _declare_backward("layer_norm")
_rms_norm = _declare("rms_norm", _rms_norm_backward)
_layer_norm = _declare("layer_norm", _layer_norm_backward)
_add_rms_norm = _declare_fused("rms_norm", _rms_norm_backward)
_add_layer_norm = _declare_fused("layer_norm", _layer_norm_backward)


# --- public functions -----------------------------------------------------------------------------


def rms_norm(
    input: Tensor,
    normalized_shape: Shape | Tensor,
    weight: Tensor | float | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
) -> Tensor:
    """`input / sqrt(mean(input ** 2) + eps) * (weight_offset + weight)` over the last dimensions.

    Called as torch's own, or as `rms_norm(x, weight, eps=1e-6)`. Gemma's weights are stored minus
    1: its `weight_offset` is 1. Without `eps` it is that of float32, as in torch.
    """
    shape, weight, eps = _arguments("rms_norm", normalized_shape, weight, eps)
    return _rms_norm(input, shape, weight, None, eps, weight_offset)


def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Shape | Tensor,
    weight: Tensor | float | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`rms_norm(input + residual, ...)` and the sum itself, in one pass."""
    shape, weight, eps = _arguments("add_rms_norm", normalized_shape, weight, eps)
    return _add_rms_norm(input, residual, shape, weight, None, eps, weight_offset)


def layer_norm(
    input: Tensor,
    normalized_shape: Shape,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = LAYER_EPS,
) -> Tensor:
    """`(input - mean) / sqrt(variance + eps) * weight + bias` over the last dimensions."""
    return _layer_norm(input, _list(normalized_shape), weight, bias, eps)


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Shape,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = LAYER_EPS,
) -> tuple[Tensor, Tensor]:
    """`layer_norm(input + residual, ...)` and the sum itself, in one pass."""
    return _add_layer_norm(input, residual, _list(normalized_shape), weight, bias, eps)


def _arguments(
    name: str, shape: Shape | Tensor, weight: Tensor | float | None, eps: float | None
) -> tuple[list[int], Optional, float | None]:
    """The long form of a call whose second argument may be the weight and third the epsilon."""
    if not isinstance(shape, Tensor):
        if isinstance(weight, int | float):
            raise TypeError(f"{name}: argument 'weight' expects a tensor, got {weight!r}")
        return _list(shape), weight, eps
    if isinstance(weight, Tensor) or (weight is not None and eps is not None):
        raise TypeError(f"{name}: got two weights; after a weight there is only 'eps'")
    return list(shape.shape), shape, weight if weight is not None else eps


def _list(shape: Shape) -> list[int]:
    return [shape] if isinstance(shape, int) else list(shape)
