"""rms_norm and layer_norm over the last dimensions, also of a sum with a residual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare.declare import FLOATS, Case, Cost, Operator
from anymetal.ops.norms.norm_rows import BACKWARD_SOURCE, FORWARD_SOURCE, Norm, Rows, rows_of

# torch takes the epsilon of the type it computes in, which is float32 for half and bfloat16 too.
RMS_EPS = torch.finfo(torch.float32).eps
LAYER_EPS = 1e-5

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


@dataclass(frozen=True)
class Call:
    """The arguments of a norm, of a fused one too, with the defaults of all of them."""

    input: Tensor
    normalized_shape: Sequence[int]
    weight: Optional = None
    bias: Optional = None
    eps: float | None = None
    weight_offset: float = 0.0
    residual: Optional = None

    @property
    def split(self) -> int:
        """The first dimension that is normalised."""
        return self.input.dim() - len(self.normalized_shape)

    def rows(self, tensor: Tensor) -> Rows:
        return rows_of(tensor, self.split)


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """rms_norm or layer_norm, plain or with a residual: an operator and its gradient."""

    kind: str
    fused: bool = False

    @property
    def name(self) -> str:
        return f"add_{self.kind}" if self.fused else self.kind

    @property
    def centred(self) -> bool:
        return self.kind == "layer_norm"

    @property
    def options(self) -> list[tuple[str, str]]:
        """Arguments after the tensors, as the schema writes them."""
        last = [("bias", "Tensor? bias=None"), ("eps", f"float eps={LAYER_EPS}")]
        if not self.centred:
            last = [("eps", "float? eps=None"), ("weight_offset", "float weight_offset=0.0")]
        return [
            ("normalized_shape", "int[] normalized_shape"),
            ("weight", "Tensor? weight=None"),
            *last,
        ]

    @property
    def names(self) -> list[str]:
        tensors = ["input", "residual"] if self.fused else ["input"]
        return tensors + [name for name, _ in self.options]

    def call(self, *args: Any, **kwargs: Any) -> Call:
        return Call(**dict(zip(self.names, args, strict=False)), **kwargs)

    def declare(self) -> tuple[Operator, Operator]:
        tensors = "Tensor input, Tensor residual" if self.fused else "Tensor input"
        options = ", ".join(text for _, text in self.options)
        forward = Operator(
            f"{self.name}({tensors}, {options})"
            f" -> {'(Tensor, Tensor)' if self.fused else 'Tensor'}",
            FORWARD_SOURCE,
            self.reference,
            cases=[self._case(*shape) for shape in _SHAPES] + self._special_cases(),
            bench=[self._case(*shape) for shape in _BENCH],
            cost=self._cost,
            naive=self._naive,
        )
        gradients = "(Tensor, Tensor, Tensor)" if self.centred else "(Tensor, Tensor)"
        extra = "Tensor? grad_sum, " if self.fused else ""
        backward = Operator(
            f"{self.name}_backward(Tensor grad, {extra}Tensor input, {options},"
            f" bool parameters=True) -> {gradients}",
            BACKWARD_SOURCE,
            self.reference_backward,
            cases=[self._backward_case(*shape) for shape in _SHAPES],
            bench=[self._backward_case(*shape) for shape in _BENCH],
            cost=self._backward_cost,
            differentiable=False,
        )
        self._implement(forward, backward)
        self._differentiate(forward, backward)
        return forward, backward

    # --- what runs --------------------------------------------------------------------------------

    def _implement(self, forward: Operator, backward: Operator) -> None:
        @forward.forward
        def _(*args: Any, **kwargs: Any) -> Any:
            call = self._checked(*args, **kwargs)
            residual = None if call.residual is None else call.rows(call.residual)
            norm = self._norm(forward, call)
            weight, bias = dense(call.weight), dense(call.bias)
            y, total = norm.normalise(call.rows(call.input), weight, bias, residual)
            return (y, total) if self.fused else y

        @forward.fake
        def _(*args: Any, **kwargs: Any) -> Any:
            call = self._checked(*args, **kwargs)
            y = torch.empty_like(call.input, memory_format=torch.contiguous_format)
            return (y, torch.empty_like(y)) if self.fused else y

        @backward.forward
        def _(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
            grad, extra, call, parameters = self._backward_call(*args, **kwargs)
            self._check_gradients(backward, grad, extra, call)
            return self._gradients(backward, grad, extra, call, parameters)

        @backward.fake
        def _(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
            _, _, call, parameters = self._backward_call(*args, **kwargs)
            dx = torch.empty_like(call.input, memory_format=torch.contiguous_format)
            return (dx, *(blank_gradient(p, dx, parameters) for p in self._parameters(call)))

    def _gradients(
        self, operator: Operator, grad: Tensor, extra: Optional, call: Call, parameters: bool
    ) -> tuple[Tensor, ...]:
        norm, x, dy = self._norm(operator, call), call.rows(call.input), call.rows(grad)
        more = None if extra is None else call.rows(extra)
        given, bias = self._parameters(call), call.bias is not None
        wanted = parameters and any(p is not None for p in given)
        found = norm.gradient(dy, more, x, dense(call.weight), bias, wanted)
        results = [blank_gradient(p, found.x, parameters) for p in given]
        if wanted:
            shape = torch.Size(call.normalized_shape)
            sums = norm.column_gradients(dy, x, found, shape, bias)
            results = [r if p is None else s for r, p, s in zip(results, given, sums, strict=False)]
        return (found.x, *results)

    def _parameters(self, call: Call) -> list[Optional]:
        return [call.weight, call.bias] if self.centred else [call.weight]

    def _norm(self, operator: Operator, call: Call) -> Norm:
        eps = call.eps if call.eps is not None else self._default_eps
        return Norm(
            operator,
            self.kind,
            math.prod(call.input.shape[: call.split]),
            math.prod(call.normalized_shape),
            float(eps),
            float(call.weight_offset),
        )

    @property
    def _default_eps(self) -> float:
        return LAYER_EPS if self.centred else RMS_EPS

    def _backward_call(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Optional, Call, bool]:
        names = ["grad", "grad_sum"] if self.fused else ["grad"]
        names += ["input", *(name for name, _ in self.options), "parameters"]
        values = dict(zip(names, args, strict=False)) | kwargs
        grad, extra = values.pop("grad"), values.pop("grad_sum", None)
        parameters = values.pop("parameters", True)
        return grad, extra, Call(**values), parameters

    # --- the gradient -----------------------------------------------------------------------------

    def _differentiate(self, forward: Operator, backward: Operator) -> None:
        def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            call = self.call(*inputs)
            ctx.save_for_backward(output[1] if self.fused else call.input, call.weight, call.bias)
            ctx.numbers = (call.normalized_shape, call.eps, call.weight_offset)
            ctx.parameters = any(
                p is not None and p.requires_grad for p in (call.weight, call.bias)
            )
            ctx.set_materialize_grads(False)

        def gradient(ctx: Any, grad: Optional, grad_sum: Optional = None) -> tuple[Any, ...]:
            normalised, weight, bias = ctx.saved_tensors
            if grad is None:
                # Only the sum was used, or nothing.
                return self._arranged(grad_sum, None, None)
            shape, eps, offset = ctx.numbers
            rest = [bias, eps] if self.centred else [eps, offset]
            extra = [grad_sum] if self.fused else []
            results = backward(grad, *extra, normalised, shape, weight, *rest, ctx.parameters)
            used = [
                g if p is not None and ctx.parameters else None
                for g, p in zip(results[1:], [weight, bias], strict=False)
            ]
            return self._arranged(results[0], *used)

        forward.gradient(setup, gradient)
        backward.without_gradient(f"{self.name} can be differentiated once")

    def _arranged(
        self, dx: Optional, weight: Optional = None, bias: Optional = None
    ) -> tuple[Optional, ...]:
        """Gradients in the order of the arguments."""
        by_name = {"input": dx, "residual": dx, "weight": weight, "bias": bias}
        return tuple(by_name.get(name) for name in self.names)

    # --- checks -----------------------------------------------------------------------------------

    def _checked(self, *args: Any, **kwargs: Any) -> Call:
        call = self.call(*args, **kwargs)
        check_dtype(self.name, "input", call.input, FLOATS)
        check_size(self.name, "input", call.input)
        self._check_normalized_shape(call)
        if call.residual is not None:
            check_like(self.name, "residual", call.residual, "input", call.input)
            check_shape(self.name, "residual", call.residual, call.input.shape, "that of 'input'")
        for name, parameter in (("weight", call.weight), ("bias", call.bias)):
            if parameter is not None:
                check_like(self.name, name, parameter, "input", call.input)
                check_shape(self.name, name, parameter, call.normalized_shape, "'normalized_shape'")
        return call

    def _check_normalized_shape(self, call: Call) -> None:
        wanted, shape = list(call.normalized_shape), list(call.input.shape)
        if not wanted or call.split < 0 or shape[call.split :] != wanted:
            raise ValueError(
                f"{self.name}: argument 'normalized_shape' expects the last dimensions of 'input',"
                f" whose shape is {shape}; got {wanted}"
            )

    def _check_gradients(
        self, operator: Operator, grad: Tensor, extra: Optional, call: Call
    ) -> None:
        check_dtype(operator.name, "input", call.input, FLOATS)
        check_size(operator.name, "input", call.input)
        for name, tensor in (("grad", grad), ("grad_sum", extra)):
            if tensor is not None:
                check_like(operator.name, name, tensor, "input", call.input)
                check_shape(operator.name, name, tensor, call.input.shape, "that of 'input'")

    # --- references, cases and costs --------------------------------------------------------------

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        call = self.call(*args, **kwargs)
        total = call.input if call.residual is None else call.input + call.residual
        y = self._reference_of(total, call)
        return (y, total) if self.fused else y

    def _reference_of(self, x: Tensor, call: Call) -> Tensor:
        shape = list(call.normalized_shape)
        eps = call.eps if call.eps is not None else self._default_eps
        if self.centred:
            return F.layer_norm(x, shape, call.weight, call.bias, eps)
        weight = call.weight
        if weight is not None and call.weight_offset:
            weight = weight + call.weight_offset
        return F.rms_norm(x, shape, weight, eps)

    def _naive(self, *args: Any, **kwargs: Any) -> Any:
        """As models write it: in float32, of one operation at a time."""
        call = self.call(*args, **kwargs)
        total = call.input if call.residual is None else call.input + call.residual
        x, dims = total.float(), list(range(call.split, total.dim()))
        if self.centred:
            x = x - x.mean(dims, keepdim=True)
        eps = call.eps if call.eps is not None else self._default_eps
        y = (x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)).to(total.dtype)
        if call.weight is not None:
            y = y * (call.weight + call.weight_offset)
        if call.bias is not None:
            y = y + call.bias
        return (y, total) if self.fused else y

    def reference_backward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        grad, extra, call, wanted = self._backward_call(*args, **kwargs)
        given = [call.input, call.weight, call.bias]
        with torch.enable_grad():
            leaves = [None if t is None else t.detach().requires_grad_() for t in given]
            copy = Call(
                leaves[0],  # type: ignore[arg-type]
                call.normalized_shape,
                leaves[1],
                leaves[2],
                call.eps,
                call.weight_offset,
            )
            result = self._reference_of(copy.input, copy)
            used = [leaf for leaf in leaves if leaf is not None]
            found = iter(torch.autograd.grad(result, used, grad))
        dx, *rest = [None if leaf is None else next(found) for leaf in leaves]
        assert dx is not None
        dx = dx if extra is None else dx + extra
        count = len(self._parameters(call))
        return (dx, *(grad.new_empty(0) if g is None or not wanted else g for g in rest[:count]))

    def _case(self, shape: tuple[int, ...], dims: int, **options: Any) -> Case:
        def make(
            dtype: torch.dtype, device: torch.device, generator: torch.Generator
        ) -> tuple[list[Any], dict[str, Any]]:
            def random(size: Sequence[int]) -> Tensor:
                return torch.randn(list(size), generator=generator).to(dtype).to(device)

            last = list(shape[len(shape) - dims :])
            tensors = [random(shape) for _ in range(2 if self.fused else 1)]
            parameters = [random(last) for _ in range(2 if self.centred else 1)]
            if not options.get("parameters", True):
                return [*tensors, last], {}
            numbers = {k: v for k, v in options.items() if k != "parameters"}
            mean = numbers.pop("mean", 0.0)
            return [tensors[0] + mean, *tensors[1:], last, *parameters], numbers

        words = ["x".join(map(str, shape)), f"over {dims}"]
        words += [f"{name}={value}" for name, value in options.items()]
        return Case(" ".join(words), make)

    def _special_cases(self) -> list[Case]:
        # The gradient of a single element is what eps leaves of it: without a large one, noise.
        special = [self._case((3, 1), 1, eps=1.0), self._case((3, 65), 1, parameters=False)]
        if self.centred:
            return [*special, self._case((2, 257), 1, eps=1e-3, mean=100.0)]
        return [*special, self._case((2, 96), 1, eps=1e-6, weight_offset=1.0)]

    def _backward_case(self, shape: tuple[int, ...], dims: int) -> Case:
        forward = self._case(shape, dims)

        def make(
            dtype: torch.dtype, device: torch.device, generator: torch.Generator
        ) -> tuple[list[Any], dict[str, Any]]:
            args, kwargs = forward.make(dtype, device, generator)
            grad = torch.randn(list(shape), generator=generator).to(dtype).to(device)
            return [grad, *args[1:2], args[0], *args[2:]] if self.fused else [grad, *args], kwargs

        return Case(forward.name, make)

    def _cost(self, *args: Any, **kwargs: Any) -> Cost:
        call = self.call(*args, **kwargs)
        each = call.input.nbytes
        read = each * (2 if self.fused else 1) + _bytes(call.weight) + _bytes(call.bias)
        return Cost(read=read, write=read - _bytes(call.weight) - _bytes(call.bias))

    def _backward_cost(self, *args: Any, **kwargs: Any) -> Cost:
        _, extra, call, parameters = self._backward_call(*args, **kwargs)
        each = call.input.nbytes
        written = sum(_bytes(p) for p in self._parameters(call)) if parameters else 0
        read = 2 * each + _bytes(extra) + _bytes(call.weight)
        return Cost(read=read, write=each + written)


def dense(parameter: Optional) -> Optional:
    """A weight or bias as kernels read it."""
    return None if parameter is None else parameter.contiguous()


def blank_gradient(parameter: Optional, like: Tensor, wanted: bool) -> Tensor:
    """Room for a parameter's gradient; nothing where it is not asked for."""
    if parameter is None or not wanted:
        return like.new_empty(0)
    return torch.empty_like(parameter, memory_format=torch.contiguous_format)


def _bytes(tensor: Optional) -> int:
    return 0 if tensor is None else tensor.nbytes


rms_norm_operator, rms_norm_backward = Family("rms_norm").declare()
layer_norm_operator, layer_norm_backward = Family("layer_norm").declare()
add_rms_norm_operator, add_rms_norm_backward = Family("rms_norm", fused=True).declare()
add_layer_norm_operator, add_layer_norm_backward = Family("layer_norm", fused=True).declare()


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
    result: Tensor = rms_norm_operator(input, shape, weight, eps, weight_offset)
    return result


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
    y, total = add_rms_norm_operator(input, residual, shape, weight, eps, weight_offset)
    return y, total


def layer_norm(
    input: Tensor,
    normalized_shape: Shape,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = LAYER_EPS,
) -> Tensor:
    """`(input - mean) / sqrt(variance + eps) * weight + bias` over the last dimensions."""
    result: Tensor = layer_norm_operator(input, _list(normalized_shape), weight, bias, eps)
    return result


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Shape,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = LAYER_EPS,
) -> tuple[Tensor, Tensor]:
    """`layer_norm(input + residual, ...)` and the sum itself, in one pass."""
    shape = _list(normalized_shape)
    y, total = add_layer_norm_operator(input, residual, shape, weight, bias, eps)
    return y, total


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
