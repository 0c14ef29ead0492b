"""Activations and quantised weights go in, f(x W^T + bias) comes out; no float matrix is made.

One or a few rows of activations are dots with rows of W; for more, tiles of W are unpacked into
threadgroup memory and multiplied there. The gradient is that of the activations and the bias.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import FLOATS, AnyOperator, Call, Cost, Gradients, operator, variants
from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare.kernel_file import kernel_file
from anymetal.ops.declare.layout import row_stride
from anymetal.ops.quantised.matvec import MATVEC, Weights, matvec, numbers_of
from anymetal.ops.quantised.quantize import (
    Quantized,
    check_device,
    check_quantized,
    kind_of,
)
from anymetal.ops.quantised.reference import (
    linear_backward_case,
    linear_backward_reference,
    linear_case,
    linear_reference,
)
from anymetal.ops.quantised.schemes import SYMMETRIC, WORD_BITS
from anymetal.policy.policy import Choice, choose

MATMUL = kernel_file("quantised/matmul.metal")
ACTIVATIONS = (None, "silu", "gelu", "gelu_tanh")

Tensor = torch.Tensor
Optional = torch.Tensor | None


# --- which kernel ---------------------------------------------------------------------------------


def as_rows(tensor: Tensor) -> tuple[Tensor, int, int]:
    """A tensor as rows of its last dimension: dense rows, their number, and their distance."""
    split = tensor.dim() - 1
    if row_stride(tensor, split) is None:
        tensor = tensor.contiguous()
    return tensor, math.prod(tensor.shape[:-1]), row_stride(tensor, split) or 0


def choice_of(operator: AnyOperator, tensor: Tensor, shape_class: str, strategy: str) -> Choice:
    return choose(
        operator=operator.name,
        dtype=variants.DTYPE_NAMES[tensor.dtype],
        shape_class=shape_class,
        device=tensor.device.type,
        strategy=strategy,
    )


def _product(
    operator: AnyOperator,
    y: Tensor,
    x: Tensor,
    weights: Weights,
    bias: Optional = None,
    activation: str | None = None,
) -> None:
    """f(x W^T + bias) by the kernel that the number of rows asks for."""
    if y.numel() == 0:
        return
    rows, count, stride = as_rows(x)
    few = choice_of(operator, x, "few_rows", "dots")
    if count <= few.values["max_rows"]:
        matvec(operator, few, (rows, count, stride), weights, bias, activation, y)
    else:
        choice = choice_of(operator, x, "large_matrix", "tiles")
        variants.record(operator.name, x.dtype, "tiles", 1)
        _tiles(choice, "matmul", (rows, count, stride), weights, bias, activation, y)


def _tiles(
    choice: Choice,
    kernel: str,
    x: tuple[Tensor, int, int],
    weights: Weights,
    bias: Optional,
    activation: str | None,
    y: Tensor,
) -> None:
    rows, count, stride = x
    limit = MATMUL.constant("most_simdgroups") * SIMDGROUP
    height = MATMUL.constant("strip_rows")
    needed = -(-count // height) * SIMDGROUP
    size = min(choice.group_size, limit, needed)
    across = -(-y.shape[-1] // MATMUL.constant("tile_columns"))
    down = -(-count // (size // SIMDGROUP * height))
    kind = f"{kind_of(weights.offsets)}_{weights.bits}"
    MATMUL.kernel(f"{kernel}_{kind}_{weights.instance(rows)}", rows.device)(
        rows,
        *weights.arguments,
        bias.contiguous() if bias is not None else rows,
        y,
        numbers_of(weights, count, stride, bias, activation),
        threads=(across * size, down),
        group_size=(size, 1),
    )


# --- checks ---------------------------------------------------------------------------------------


def _check_activation(name: str, activation: str | None) -> None:
    if activation not in ACTIVATIONS:
        known = ", ".join(repr(one) for one in ACTIVATIONS)
        raise ValueError(f"{name}: argument 'activation' expects {known}, got {activation!r}")


def _check_scales(name: str, x: Tensor, argument: str, scales: Tensor, offsets: Optional) -> None:
    """Scales are of the activations' dtype, or the halves of a symmetric scheme."""
    half = scales.dtype == torch.float16 and kind_of(offsets) == SYMMETRIC
    if scales.dtype != x.dtype and not half:
        raise TypeError(
            f"{name}: argument 'scales' expects {str(x.dtype).removeprefix('torch.')}, as"
            f" '{argument}', got {str(scales.dtype).removeprefix('torch.')}. Convert one of them"
            " with .to()"
        )


def _checked(
    name: str,
    argument: str,
    x: Tensor,
    length: str,
    weights: Weights,
    bias: Optional,
    activation: str | None,
) -> None:
    """`length` says which side of the matrix the rows of x have: 'columns' or 'rows'."""
    check_dtype(name, argument, x, FLOATS)
    check_size(name, argument, x)
    check_quantized(
        name, weights.words, weights.scales, weights.offsets, weights.bits, weights.group_size
    )
    check_device(name, argument, x, "words", weights.words)
    _check_scales(name, x, argument, weights.scales, weights.offsets)
    _check_activation(name, activation)
    expected = weights.columns if length == "columns" else weights.rows
    if x.dim() == 0 or x.shape[-1] != expected:
        raise ValueError(
            f"{name}: argument '{argument}' expects rows of {expected}, the {length} of the"
            f" weights, got shape {list(x.shape)}"
        )
    if bias is not None:
        check_like(name, "bias", bias, argument, x)
        check_shape(name, "bias", bias, (weights.rows,), "the rows of the weights")


# --- forward --------------------------------------------------------------------------------------


def _cost(
    input: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Optional = None,
    bias: Optional = None,
    group_size: int = 32,
    **_: Any,
) -> Cost:
    read = sum(t.nbytes for t in (input, words, scales, offsets, bias) if t is not None)
    rows = input.numel() // max(input.shape[-1], 1)
    weights = scales.numel() * group_size
    written = rows * words.shape[0] * input.element_size()
    return Cost(read=read, write=written, flops=2 * rows * weights)


def _result(name: str, x: Tensor, columns: int) -> Tensor:
    result = x.new_empty(*x.shape[:-1], columns)
    check_size(name, "result", result)
    return result


@operator(
    source="matvec.metal",
    reference=linear_reference,
    cases=[
        linear_case((0,), 5, 64, "int4", 64),
        linear_case((2, 1), 1, 32, "int4", 32, bias=True),
        linear_case((1,), 33, 256, "int4", 64, bias=True, activation="silu"),
        linear_case((), 31, 160, "int8", 32),
        linear_case((3,), 7, 1152, "q4_0", 32, bias=True),
        linear_case((2,), 32, 96, "int8_zero_point", 32, activation="gelu"),
        linear_case((33,), 31, 64, "int4_zero_point", 64, bias=True),
        linear_case((2, 16), 65, 96, "mlx_8bit", 32, bias=True, activation="gelu_tanh"),
        linear_case((7,), 40, 320, "q8_0", 32, activation="silu"),
        linear_case((1,), 13, 4224, "mlx_4bit", 128, bias=True),
        linear_case((5,), 67, 128, "mlx_4bit", 64, bias=True, activation="gelu"),
    ],
    bench=[
        linear_case((1,), 4096, 4096, "int4", 64, name="matvec 4096x4096"),
        linear_case((1,), 4096, 14336, "int4", 64, name="matvec 4096x14336"),
        linear_case((1,), 4096, 4096, "q4_0", 32, name="matvec 4096x4096"),
        linear_case((128,), 1024, 1024, "int4", 64, name="matmul 128x1024 by 1024x1024"),
    ],
    cost=_cost,
)
def _quantized_linear(
    input: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    bias: Tensor | None,
    bits: int,
    group_size: int,
    activation: str | None = None,
) -> Tensor:
    weights = Weights(words, scales, offsets, bits, group_size)
    _checked("quantized_linear", "input", input, "columns", weights, bias, activation)
    return _result("quantized_linear", input, words.shape[0])


@_quantized_linear.run
def _(
    output: Tensor,
    input: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bias: Optional,
    bits: int,
    group_size: int,
    activation: str | None = None,
) -> None:
    weights = Weights(words, scales, offsets, bits, group_size)
    _product(_quantized_linear, output, input, weights, bias, activation)


# --- backward -------------------------------------------------------------------------------------


def _backward_cost(
    grad: Tensor,
    input: Optional,
    words: Tensor,
    scales: Tensor,
    offsets: Optional = None,
    bias: Optional = None,
    group_size: int = 32,
    **_: Any,
) -> Cost:
    """Once over the weights, and another time where the activation's input is computed again."""
    parts = sum(t.nbytes for t in (words, scales, offsets) if t is not None)
    times = 1 if input is None else 2
    rows = grad.numel() // max(grad.shape[-1], 1)
    weights = scales.numel() * group_size
    written = rows * scales.shape[1] * group_size * grad.element_size()
    extra = bias.nbytes if bias is not None else 0
    read = times * parts + grad.nbytes + (input.nbytes if input is not None else 0) + extra
    return Cost(read=read, write=written + extra, flops=2 * times * rows * weights)


def _slopes(
    grad: Tensor, x: Tensor, weights: Weights, bias: Optional, activation: str
) -> tuple[Tensor, Tensor]:
    """The gradients in front of the activation: of x W^T, and of the bias."""
    before = _result("quantized_linear", x, weights.rows)
    _product(_quantized_linear, before, x, weights)
    name = activation.removesuffix("_tanh")
    option = [] if name == "silu" else ["tanh" if activation == "gelu_tanh" else "none"]
    operators = torch.ops.anymetal
    if bias is None:
        gradient = getattr(operators, f"{name}_backward")(grad, before, *option)
        return gradient, grad.new_empty(0)
    inner, outer = getattr(operators, f"bias_{name}_backward")(grad, before, bias, *option)
    return inner, outer


def _product_with_columns(grad: Tensor, weights: Weights, result: Tensor) -> None:
    """dy W by the kernel that the number of rows asks for."""
    rows, count, stride = as_rows(grad)
    few = choice_of(_quantized_linear_backward, grad, "few_rows", "columns")
    if count > few.values["max_rows"]:
        variants.record(_quantized_linear_backward.name, grad.dtype, "tiles", 1)
        choice = choice_of(_quantized_linear_backward, grad, "large_matrix", "tiles")
        _tiles(choice, "matmul_backward", (rows, count, stride), weights, None, None, result)
        return
    name = _quantized_linear_backward.name
    variants.record(name, grad.dtype, "columns", WORD_BITS // weights.bits)
    blocks = weights.words.shape[1] // SIMDGROUP
    size = min(few.group_size, MATVEC.constant("most_simdgroups") * SIMDGROUP)
    kind = f"{kind_of(weights.offsets)}_{weights.bits}"
    MATVEC.kernel(f"matvec_backward_{kind}_{weights.instance(rows)}", rows.device)(
        rows,
        *weights.arguments,
        result,
        numbers_of(weights, count, stride, None, None),
        threads=(blocks * size, count),
        group_size=(size, 1),
    )


@operator(
    source="matmul.metal",
    reference=linear_backward_reference,
    cases=[
        linear_backward_case(linear_case((0,), 5, 64, "int4", 64), False),
        linear_backward_case(linear_case((2, 1), 1, 32, "int4", 32, bias=True), False),
        linear_backward_case(
            linear_case((3,), 33, 128, "q4_0", 32, bias=True, activation="gelu"), True
        ),
        linear_backward_case(linear_case((33,), 31, 64, "int8_zero_point", 64, bias=True), False),
        linear_backward_case(linear_case((20,), 70, 96, "mlx_8bit", 32, activation="silu"), True),
    ],
    cost=_backward_cost,
    no_gradient="quantized_linear can be differentiated once",
)
def _quantized_linear_backward(
    grad: Tensor,
    input: Tensor | None,
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    bias: Tensor | None,
    bits: int,
    group_size: int,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    name = "quantized_linear_backward"
    weights = Weights(words, scales, offsets, bits, group_size)
    _checked(name, "grad", grad, "rows", weights, bias, activation)
    result = _result(name, grad, weights.columns)
    if activation is not None:
        if input is None:
            raise ValueError(
                f"{name}: argument 'input' expects the input of the forward call, which the slope"
                f" of {activation!r} is computed from, got None"
            )
        check_like(name, "input", input, "grad", grad)
        check_shape(name, "input", input, result.shape, "rows of the weights' columns")
    return result, grad.new_empty(0 if bias is None else weights.rows)


@_quantized_linear_backward.run
def _(
    gradients: tuple[Tensor, Tensor],
    grad: Tensor,
    input: Optional,
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bias: Optional,
    bits: int,
    group_size: int,
    activation: str | None = None,
) -> None:
    weights = Weights(words, scales, offsets, bits, group_size)
    if activation is not None:
        assert input is not None
        grad, of_bias = _slopes(grad, input, weights, bias, activation)
        gradients[1].copy_(of_bias)
    elif bias is not None:
        torch.sum(grad.reshape(-1, weights.rows), 0, out=gradients[1])
    if gradients[0].numel():
        _product_with_columns(grad, weights, gradients[0])


@_quantized_linear.backward(
    keep=["words", "scales", "offsets", "bias"],
    # Without an activation the gradient needs no input.
    keep_where={"input": lambda values: values["activation"] is not None},
)
def _(call: Call, grad: Tensor) -> Gradients:
    of_input, of_bias = _quantized_linear_backward(
        grad, call.input if call.activation is not None else None, call.words, call.scales,
        call.offsets, call.bias, call.bits, call.group_size, call.activation,
    )  # fmt: skip
    return {"input": of_input, "bias": of_bias if call.has("bias") else None}


# --- the public function --------------------------------------------------------------------------


def quantized_linear(
    input: Tensor, weight: Quantized, bias: Optional = None, *, activation: str | None = None
) -> Tensor:
    """torch.nn.functional.linear with quantised weights, sums in float32.

    `activation` is applied to the sum before it is rounded: None, "silu", "gelu" or "gelu_tanh".
    There is a gradient for `input` and `bias`; weights carry none, and scales that ask for one are
    refused.
    """
    parts = (weight.scales, weight.offsets)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in parts):
        raise RuntimeError(
            "quantized_linear: argument 'weight' has scales that require a gradient, but quantised"
            " weights have none. Detach them"
        )
    return _quantized_linear(
        input,
        weight.words,
        weight.scales,
        weight.offsets,
        bias,
        weight.scheme.bits,
        weight.group_size,
        activation,
    )
