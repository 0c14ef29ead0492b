"""matmul, linear and addmm: torch's products of matrices, with bias and activation in one kernel.

The gradients are products again, computed by the same operators: they can be differentiated as
often as one likes. Only the slope of an activation is an operator of its own: it computes the
argument of the activation once more instead of keeping it, which costs a product of the size of the
forward one and saves the memory of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare import Autocast, Call, Case, Cost, Gradients, operator
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.checks import (
    MAX_ELEMENTS,
    check_input,
    check_like,
    check_shape,
    check_size,
)
from anymetal.ops.matmul.product import ACTIVATIONS, Epilogue, broadcast, launch

SOURCE = "matmul.metal"
Function = Callable[..., Any]
Tensor = torch.Tensor
Optional = torch.Tensor | None

# Nothing, no k, vectors, few rows either way, tiles with ragged edges, a long k, batches.
_PAIRS = (
    ((0, 5), (5, 3)),
    ((3, 0), (0, 4)),
    ((2, 0, 3), (3, 5)),
    ((33,), (33,)),
    ((4099,), (4099, 3)),
    ((1, 1), (1, 1)),
    ((40, 31), (31,)),
    ((5, 32), (32, 36)),
    ((37, 29), (29, 7)),
    ((33, 17), (17, 31)),
    ((12, 64), (64, 20)),
    ((3, 1, 9, 20), (2, 20, 13)),
    ((2, 3, 10, 33), (33, 12)),
)
_BENCH = tuple(((side, side), (side, side)) for side in (256, 512, 1024, 2048))


# --- matmul ---------------------------------------------------------------------------------------


def _matmul_shape(name: str, input: Tensor, other: Tensor) -> list[int]:
    """The shape of the result, once both tensors are found to fit."""
    check_input(name, input)
    check_like(name, "other", other, "input", input)
    check_size(name, "other", other)
    for argument, tensor in (("input", input), ("other", other)):
        if tensor.dim() == 0:
            raise ValueError(
                f"{name}: argument '{argument}' expects at least one dimension, got shape []"
            )
    length, along = input.shape[-1], -2 if other.dim() > 1 else -1
    if other.shape[along] != length:
        raise ValueError(
            f"{name}: argument 'other' expects size {length} in dimension {along} (the last size of"
            f" 'input', whose shape is {list(input.shape)}), got shape {list(other.shape)}"
        )
    shape = [
        *_batch_shape(name, input.shape[:-2], other.shape[:-2]),
        *input.shape[-2:-1],
        *other.shape[-1:][: other.dim() - 1],
    ]
    return _checked_result(name, shape)


def _batch_shape(name: str, first: Sequence[int], second: Sequence[int]) -> list[int]:
    try:
        return list(broadcast(first, second))
    except RuntimeError:
        raise ValueError(
            f"{name}: the dimensions before the last two, {list(first)} of 'input' and"
            f" {list(second)} of 'other', cannot be broadcast: each pair of sizes must be equal or"
            " have a 1"
        ) from None


def _checked_result(name: str, shape: list[int]) -> list[int]:
    if math.prod(shape) > MAX_ELEMENTS:
        raise ValueError(
            f"{name}: the result of shape {shape} has {math.prod(shape)} elements, kernels index at"
            f" most {MAX_ELEMENTS}. Split a tensor along a dimension"
        )
    return shape


def _matmul_cost(input: Tensor, other: Tensor) -> Cost:
    shape = _matmul_shape("matmul", input, other)
    results = math.prod(shape)
    return Cost(
        read=input.nbytes + other.nbytes,
        write=results * input.element_size(),
        flops=2 * results * input.shape[-1],
    )


@operator(
    source=SOURCE,
    reference=torch.matmul,
    cases=[random_case(*shapes) for shapes in _PAIRS],
    bench=[
        *(random_case(*shapes) for shapes in _BENCH),
        random_case((8, 4096), (4096, 1024)),
        random_case((8, 256, 64), (8, 64, 256)),
    ],
    cost=_matmul_cost,
    autocast=Autocast("lower", like="matmul"),
)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The product of two tensors, as torch.matmul: vectors, matrices, and batches of them."""
    return input.new_empty(_matmul_shape("matmul", input, other))


@matmul.run
def _(output: Tensor, input: Tensor, other: Tensor) -> None:
    a, b = _as_matrices(input, other)
    launch("matmul", a, b, output, Epilogue())


@matmul.backward(keep=["input", "other"])
def _(call: Call, grad: Tensor) -> Gradients:
    a, b = _as_matrices(call.input, call.other)
    grad = grad.unsqueeze(-1) if call.other.dim() == 1 else grad
    grad = grad.unsqueeze(-2) if call.input.dim() == 1 else grad
    found = {}
    if call.needs("input"):
        found["input"] = _product_like(grad, b.mT, a.shape).view(call.input.shape)
    if call.needs("other"):
        found["other"] = _product_like(a.mT, grad, b.shape).view(call.other.shape)
    return found


def _as_matrices(input: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """A vector on the left is one row, on the right one column."""
    a = input.unsqueeze(0) if input.dim() == 1 else input
    return a, other.unsqueeze(-1) if other.dim() == 1 else other


def _product_like(left: Tensor, right: Tensor, shape: Sequence[int]) -> Tensor:
    """left @ right, summed over the dimensions of the batch that `shape` was broadcast along.

    They are laid side by side with the dimension that the product sums over anyway, so that all is
    one sum in float.
    """
    batch = max(left.dim(), right.dim()) - 2
    left, right = _with_batch(left, batch), _with_batch(right, batch)
    own = [1] * (batch + 2 - len(shape)) + list(shape)
    summed = [i for i in range(batch) if own[i] == 1 and left.shape[i] == right.shape[i] != 1]
    if not summed:
        return matmul(left, right)
    kept = [i for i in range(batch) if i not in summed]
    left = left.permute(*kept, batch, *summed, batch + 1).flatten(len(kept) + 1)
    right = right.permute(*kept, *summed, batch, batch + 1).flatten(len(kept), -2)
    return matmul(left, right)


def _with_batch(matrix: Tensor, dimensions: int) -> Tensor:
    return matrix[(None,) * (dimensions + 2 - matrix.dim())]


# --- linear ---------------------------------------------------------------------------------------

_FUNCTIONS: dict[str | None, Function] = {
    None: lambda x: x,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def _linear_reference(
    input: Tensor,
    weight: Tensor,
    bias: Optional = None,
    *,
    activation: str | None = None,
    residual: Optional = None,
) -> Tensor:
    result: Tensor = _FUNCTIONS[activation](F.linear(input, weight, bias))
    return result if residual is None else result + residual


def _slope_reference(
    grad: Tensor, input: Tensor, weight: Tensor, bias: Optional, activation: str
) -> Tensor:
    with torch.enable_grad():
        before = F.linear(input, weight, bias).detach().requires_grad_()
        (slope,) = torch.autograd.grad(_FUNCTIONS[activation](before), before, grad)
    return slope


def _linear_case(rows: Sequence[int], k: int, n: int, **options: Any) -> Case:
    """input, weight and by `options` bias, activation, residual; `slope` puts a gradient first."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype).to(device)

        args: list[Any] = [random(*rows, n)] if options.get("slope") else []
        args += [random(*rows, k), random(n, k) / max(k, 1) ** 0.5]
        args.append(random(n) if options.get("bias") else None)
        if options.get("slope"):
            return [*args, options["activation"]], {}
        residual = random(*rows, n) if options.get("residual") else None
        return args, {"activation": options.get("activation"), "residual": residual}

    words = ["x".join(map(str, (*rows, k))), f"{n}x{k}"]
    words += [str(value) if name == "activation" else name for name, value in options.items()]
    return Case(" ".join(words), make)


def _linear_cost(input: Tensor, weight: Tensor, *tensors: Any, **options: Any) -> Cost:
    results = math.prod([*input.shape[:-1], *weight.shape[:-1]])
    given = (input, weight, *tensors, *options.values())
    return Cost(
        read=sum(tensor.nbytes for tensor in given if isinstance(tensor, Tensor)),
        write=results * input.element_size(),
        flops=2 * results * input.shape[-1],
    )


def _linear_shape(
    name: str,
    input: Tensor,
    weight: Tensor,
    bias: Optional,
    activation: str | None,
    residual: Optional,
) -> list[int]:
    """The shape of the result, once everything is found to fit."""
    check_input(name, input)
    check_like(name, "weight", weight, "input", input)
    check_size(name, "weight", weight)
    if input.dim() == 0 or weight.dim() not in (1, 2):
        raise ValueError(
            f"{name}: argument 'weight' expects shape [out, in] or [in] and 'input' [..., in], got"
            f" {list(weight.shape)} and {list(input.shape)}"
        )
    expected = [*weight.shape[:-1], input.shape[-1]]
    check_shape(name, "weight", weight, expected, "the last size of 'input' comes last")
    if activation not in ACTIVATIONS:
        known = ", ".join(repr(each) for each in ACTIVATIONS)
        raise ValueError(f"{name}: argument 'activation' expects {known}, got {activation!r}")
    shape = [*input.shape[:-1], *weight.shape[:-1]]
    if bias is not None:
        check_like(name, "bias", bias, "input", input)
        check_shape(name, "bias", bias, weight.shape[:-1], "the first size of 'weight'")
    if residual is not None:
        check_like(name, "residual", residual, "input", input)
        check_shape(name, "residual", residual, shape, "that of the result")
    return _checked_result(name, shape)


def _launch_linear(
    operator: str, input: Tensor, weight: Tensor, result: Tensor, epilogue: Epilogue
) -> None:
    """A weight of one dimension gives results without the last one."""
    a = input.unsqueeze(0) if input.dim() == 1 else input
    b = weight.unsqueeze(-1) if weight.dim() == 1 else weight.mT
    if weight.dim() == 1 and epilogue.residual is not None:
        epilogue = replace(epilogue, residual=epilogue.residual.unsqueeze(-1))
    launch(operator, a, b, result, epilogue)


@operator(
    source=SOURCE,
    reference=_linear_reference,
    cases=[
        _linear_case((0,), 4, 3, bias=True),
        _linear_case((3,), 0, 5, bias=True, activation="silu"),
        _linear_case((), 33, 5),
        _linear_case((1,), 31, 33, bias=True, activation="relu"),
        _linear_case((2, 3), 32, 40, bias=True, activation="gelu_tanh"),
        _linear_case((2, 19), 40, 31, bias=True, activation="gelu", residual=True),
        _linear_case((40,), 36, 12, activation="silu", residual=True),
    ],
    bench=[
        _linear_case((512,), 512, 2048, bias=True, activation="gelu_tanh"),
        _linear_case((1,), 4096, 4096),
    ],
    cost=_linear_cost,
    autocast=Autocast("lower", like="linear"),
)
def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """f(input @ weight.T + bias) + residual, as F.linear; sums and f are rounded once, together.

    `activation` is "relu", "silu", "gelu", "gelu_tanh" or None. The gradient computes the argument
    of the activation again.
    """
    return input.new_empty(_linear_shape("linear", input, weight, bias, activation, residual))


@linear.run
def _(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Optional = None,
    *,
    activation: str | None = None,
    residual: Optional = None,
) -> None:
    _launch_linear("linear", input, weight, output, Epilogue(bias, residual, activation))


@linear.backward(keep=["input", "weight", "bias"])
def _(call: Call, grad: Tensor) -> Gradients:
    inner = grad
    if call.activation is not None and call.needs("input", "weight", "bias"):
        inner = linear_slope(grad, call.input, call.weight, call.bias, call.activation)
    input, weight = call.input, call.weight
    matrix = weight.unsqueeze(0) if weight.dim() == 1 else weight
    rows = inner.reshape(math.prod(input.shape[:-1]), matrix.shape[0])
    dense = input.reshape(rows.shape[0], input.shape[-1])
    found = {"residual": grad} if call.needs("residual") else {}
    if call.needs("input"):
        found["input"] = matmul(rows, matrix).view(input.shape)
    if call.needs("weight"):
        found["weight"] = matmul(rows.mT, dense).view(weight.shape)
    if call.needs("bias"):
        found["bias"] = rows.sum(0).view(weight.shape[:-1])
    return found


@operator(
    source=SOURCE,
    reference=_slope_reference,
    cases=[
        _linear_case((0,), 4, 3, slope=True, activation="relu"),
        _linear_case((3,), 31, 10, slope=True, bias=True, activation="gelu"),
        _linear_case((33,), 20, 12, slope=True, bias=True, activation="silu"),
    ],
    cost=lambda grad, *args, **_: _linear_cost(*args, grad),
    no_gradient="linear with an activation can be differentiated once",
)
def linear_slope(
    grad: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> Tensor:
    """grad times the slope of the activation at input @ weight.T + bias."""
    check_input("linear_slope", grad, "grad")
    shape = _linear_shape("linear_slope", input, weight, bias, activation, None)
    check_like("linear_slope", "grad", grad, "input", input)
    check_shape("linear_slope", "grad", grad, shape, "that of the result")
    return input.new_empty(shape)


@linear_slope.run
def _(
    output: Tensor, grad: Tensor, input: Tensor, weight: Tensor, bias: Optional, activation: str
) -> None:
    epilogue = Epilogue(bias, grad, activation, is_gradient=True)
    _launch_linear("linear_slope", input, weight, output, epilogue)


# --- addmm ----------------------------------------------------------------------------------------


def _addmm_case(m: int, k: int, n: int, input: Sequence[int], **scales: float) -> Case:
    return random_case(input, (m, k), (k, n), **scales)


def _addmm_shape(input: Tensor, mat1: Tensor, mat2: Tensor) -> list[int]:
    check_input("addmm", input)
    for name, matrix in (("mat1", mat1), ("mat2", mat2)):
        check_like("addmm", name, matrix, "input", input)
        check_size("addmm", name, matrix)
        if matrix.dim() != 2:
            raise ValueError(
                f"addmm: argument '{name}' expects two dimensions, got shape {list(matrix.shape)}"
            )
    check_shape(
        "addmm", "mat2", mat2, (mat1.shape[1], mat2.shape[1]), "the last size of 'mat1' comes first"
    )
    shape = [mat1.shape[0], mat2.shape[1]]
    own = [1] * (2 - input.dim()) + list(input.shape)
    if len(own) != 2 or any(o not in (1, size) for o, size in zip(own, shape, strict=False)):
        raise ValueError(
            f"addmm: argument 'input' expects a shape that broadcasts to {shape}, got"
            f" {list(input.shape)}"
        )
    return _checked_result("addmm", shape)


@operator(
    source=SOURCE,
    reference=torch.addmm,
    cases=[
        _addmm_case(0, 3, 2, (2,)),
        _addmm_case(3, 0, 2, (2,), beta=0.5),
        _addmm_case(9, 33, 31, (31,)),
        _addmm_case(5, 20, 12, (5, 1), alpha=-0.5, beta=2.0),
        _addmm_case(20, 36, 40, (20, 40), alpha=0.25),
    ],
    cost=lambda input, mat1, mat2, **scales: Cost(
        read=input.nbytes + mat1.nbytes + mat2.nbytes,
        write=mat1.shape[0] * mat2.shape[1] * mat1.element_size(),
        flops=2 * mat1.numel() * mat2.shape[1],
    ),
    autocast=Autocast("lower", like="addmm"),
)
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """beta * input + alpha * mat1 @ mat2, as torch.addmm."""
    return input.new_empty(_addmm_shape(input, mat1, mat2))


@addmm.run
def _(
    output: Tensor,
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
) -> None:
    # As torch has it, what beta = 0 multiplies is not read: it may hold anything.
    bias = input if beta else None
    launch("addmm", mat1, mat2, output, Epilogue(bias, alpha=alpha, beta=beta))


@addmm.backward(keep=["mat1", "mat2"])
def _(call: Call, grad: Tensor) -> Gradients:
    found = {}
    if call.needs("input"):
        found["input"] = grad.sum_to_size(call.like("input").shape) * call.beta
    if call.needs("mat1"):
        found["mat1"] = matmul(grad, call.mat2.mT) * call.alpha
    if call.needs("mat2"):
        found["mat2"] = matmul(call.mat1.mT, grad) * call.alpha
    return found
