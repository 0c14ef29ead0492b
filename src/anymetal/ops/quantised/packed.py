"""Activations and weights in other libraries' blocks go in, x W^T + bias comes out.

The bytes of q4_K, q6_K (ggml) and nf4 (bitsandbytes) are read as they lie in a file. A few rows of
activations are dots with rows of W; for more, tiles of W are unpacked into threadgroup memory. The
gradient is that of the activations and the bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import (
    FLOATS,
    AnyOperator,
    Call,
    Case,
    Cost,
    Gradients,
    operator,
    variants,
)
from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare.kernel_file import SUFFIXES, kernel_file
from anymetal.ops.quantised.blocks import FORMATS, format_named, unpacked_blocks
from anymetal.ops.quantised.linear import as_rows, choice_of
from anymetal.ops.quantised.quantize import check_device
from anymetal.ops.quantised.reference import kept_matrix
from anymetal.policy.policy import Choice

PACKED = kernel_file("quantised/packed.metal")

Tensor = torch.Tensor
Optional = torch.Tensor | None


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [out, in] in blocks: bytes as their library keeps them.

    `blocks` is uint8: [out, bytes of a row] of q4_K and q6_K, any shape of nf4, whose `scales` are
    the largest weight (absmax, float32) of each `block_size` weights in the order of memory.
    """

    blocks: Tensor
    format: str
    shape: tuple[int, int]
    scales: Tensor | None = None
    block_size: int = 0

    def check(self) -> None:
        """ValueError or TypeError where the parts do not belong together."""
        _check_weight("PackedWeight", *self.arguments)

    @property
    def arguments(self) -> tuple[Tensor, Optional, int, int, str, int]:
        """What the operators take for a weight."""
        return self.blocks, self.scales, *self.shape, self.format, self.block_size

    @property
    def nbytes(self) -> int:
        """Bytes of blocks and scales."""
        return self.blocks.nbytes + (self.scales.nbytes if self.scales is not None else 0)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The matrix, bit for bit as its library has it in float32, then in `dtype`."""
        return unpacked_blocks(*self.arguments).to(dtype)


# --- checks ---------------------------------------------------------------------------------------


def _check_weight(
    name: str,
    blocks: Tensor,
    scales: Optional,
    rows: int,
    columns: int,
    format: str,
    block_size: int,
) -> None:
    known = format_named(name, format)
    check_dtype(name, "blocks", blocks, [torch.uint8])
    check_size(name, "blocks", blocks)
    if columns % known.chunk:
        raise ValueError(
            f"{name}: argument 'columns' expects a multiple of {known.chunk} for {format}, got"
            f" {columns}"
        )
    expected = rows * known.bytes_of(columns)
    if blocks.numel() != expected:
        raise ValueError(
            f"{name}: argument 'blocks' expects {expected} bytes for {rows}x{columns} of {format},"
            f" got {blocks.numel()}"
        )
    if not known.has_scales:
        if scales is not None or block_size:
            raise ValueError(f"{name}: {format} takes no 'scales' and no 'block_size'")
        return
    if block_size < known.chunk or block_size & (block_size - 1):
        raise ValueError(
            f"{name}: argument 'block_size' expects a power of two from {known.chunk} on, got"
            f" {block_size}"
        )
    if scales is None:
        raise ValueError(f"{name}: argument 'scales' expects the blocks' absmax, got None")
    check_dtype(name, "scales", scales, [torch.float32])
    check_device(name, "scales", scales, "blocks", blocks)
    check_shape(name, "scales", scales, (-(-rows * columns // block_size),), "one for each block")


def _checked(
    name: str, argument: str, x: Tensor, length: int, blocks: Tensor, bias: Optional, rows: int
) -> None:
    check_dtype(name, argument, x, FLOATS)
    check_size(name, argument, x)
    check_device(name, argument, x, "blocks", blocks)
    if x.dim() == 0 or x.shape[-1] != length:
        raise ValueError(
            f"{name}: argument '{argument}' expects rows of {length}, got shape {list(x.shape)}"
        )
    if bias is not None:
        check_like(name, "bias", bias, argument, x)
        check_shape(name, "bias", bias, (rows,), "the rows of the weights")


def _result(name: str, x: Tensor, columns: int) -> Tensor:
    result = x.new_empty(*x.shape[:-1], columns)
    check_size(name, "result", result)
    return result


# --- launches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """One launch: rows of activations (or of gradients), and the matrix."""

    x: Tensor
    count: int
    stride: int
    blocks: Tensor
    scales: Optional
    rows: int
    columns: int
    format: str
    block_size: int

    def launch(
        self, kernel: str, others: tuple[Tensor, ...], has_bias: bool, groups: int, size: int,
        down: int,
    ) -> None:  # fmt: skip
        blocks = self.blocks.contiguous()
        numbers = {
            "count": self.count,
            "rows": self.rows,
            "columns": self.columns,
            "group_size": max(self.block_size, 1),
            "activation": "none",
            "has_bias": has_bias,
            "split": 1,
            "stride": self.stride,
        }
        PACKED.kernel(f"packed_{kernel}_{self.format}_{SUFFIXES[self.x.dtype]}", self.x.device)(
            self.x,
            blocks,
            # Not read where the format has none.
            blocks.new_empty(1, dtype=torch.float32)
            if self.scales is None
            else self.scales.contiguous(),
            *others,
            numbers,
            threads=(groups * size, down),  # whole threadgroups
            group_size=(size, 1),
        )

    def tiles(self, choice: Choice, kernel: str, bias: Optional, y: Tensor) -> None:
        height = PACKED.constant("strip_rows")
        needed = -(-self.count // height) * SIMDGROUP
        size = min(choice.group_size, PACKED.constant("most_simdgroups") * SIMDGROUP, needed)
        across = -(-y.shape[-1] // PACKED.constant("tile_columns"))
        down = -(-self.count // (size // SIMDGROUP * height))
        others = (bias.contiguous() if bias is not None else self.x, y)
        self.launch(kernel, others, bias is not None, across, size, down)


def _product(x: Tensor, *matrix: Any) -> _Product:
    return _Product(*as_rows(x), *matrix)


# --- cases ----------------------------------------------------------------------------------------


def _packed_case(
    batch: tuple[int, ...], rows: int, columns: int, format: str, block_size: int = 0,
    *, bias: bool = False, gradient: bool = False, name: str = "",
) -> Case:  # fmt: skip
    """Random blocks of weights about as large as a layer's."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        length = rows if gradient else columns
        x = torch.randn(*batch, length, generator=generator).to(dtype).to(device)
        blocks, scales = FORMATS[format].random(rows, columns, block_size, generator)
        add = torch.randn(rows, generator=generator).to(dtype).to(device) if bias else None
        moved = (blocks.to(device), scales.to(device) if scales is not None else None)
        return [x, *moved, add, rows, columns, format, block_size], {}

    shape = name or f"{'x'.join(map(str, (*batch, columns)))} by {rows}x{columns}"
    more = (f" blocks of {block_size}" if block_size else "") + (" bias" if bias else "")
    return Case(f"{shape} {format}{more}", make)


# --- forward --------------------------------------------------------------------------------------


def _matrix(dtype: torch.dtype, blocks: Tensor, scales: Optional, *shape: Any) -> Tensor:
    others = blocks if scales is None else scales
    made = lambda: unpacked_blocks(blocks, scales, *shape).to(dtype)  # noqa: E731
    return kept_matrix(blocks, others, dtype, made)


def _reference(
    input: Tensor, blocks: Tensor, scales: Optional, bias: Optional, rows: int, columns: int,
    format: str, block_size: int = 0,
) -> Tensor:  # fmt: skip
    matrix = _matrix(input.dtype, blocks, scales, rows, columns, format, block_size)
    return F.linear(input, matrix, bias)


def _cost(
    input: Tensor, blocks: Tensor, scales: Optional, bias: Optional, rows: int, columns: int,
    **_: Any,
) -> Cost:  # fmt: skip
    read = sum(t.nbytes for t in (input, blocks, scales, bias) if t is not None)
    count = input.numel() // max(columns, 1)
    return Cost(read, count * rows * input.element_size(), 2 * count * rows * columns)


@operator(
    source="packed.metal",
    reference=_reference,
    cases=[
        _packed_case((0,), 5, 256, "q4_K"),
        _packed_case((2, 1), 1, 256, "q4_K", bias=True),
        _packed_case((1,), 33, 1280, "q4_K"),
        _packed_case((37,), 67, 512, "q4_K", bias=True),
        _packed_case((), 31, 512, "q6_K", bias=True),
        _packed_case((3,), 7, 2816, "q6_K"),
        _packed_case((2, 17), 40, 256, "q6_K"),
        _packed_case((1,), 5, 32, "nf4", 64, bias=True),
        _packed_case((3,), 33, 1120, "nf4", 32),
        _packed_case((4,), 13, 4160, "nf4", 64),
        _packed_case((33,), 35, 96, "nf4", 128, bias=True),
    ],
    bench=[
        _packed_case((1,), 4096, 4096, "q4_K", name="matvec 4096x4096"),
        _packed_case((1,), 4096, 14336, "q4_K", name="matvec 4096x14336"),
        _packed_case((1,), 4096, 4096, "q6_K", name="matvec 4096x4096"),
        _packed_case((1,), 4096, 4096, "nf4", 64, name="matvec 4096x4096"),
        _packed_case((128,), 1024, 1024, "q4_K", name="matmul 128x1024 by 1024x1024"),
    ],
    cost=_cost,
)
def _packed_linear(
    input: Tensor,
    blocks: Tensor,
    scales: Tensor | None,
    bias: Tensor | None,
    rows: int,
    columns: int,
    format: str,
    block_size: int = 0,
) -> Tensor:
    _check_weight("packed_linear", blocks, scales, rows, columns, format, block_size)
    _checked("packed_linear", "input", input, columns, blocks, bias, rows)
    return _result("packed_linear", input, rows)


@_packed_linear.run
def _(
    output: Tensor,
    input: Tensor,
    blocks: Tensor,
    scales: Optional,
    bias: Optional,
    rows: int,
    columns: int,
    format: str,
    block_size: int = 0,
) -> None:
    if output.numel() == 0:
        return
    product = _product(input, blocks, scales, rows, columns, format, block_size)
    few = choice_of(_packed_linear, input, "few_rows", "dots")
    if product.count > few.values["max_rows"]:
        variants.record(_packed_linear.name, input.dtype, "tiles", 1)
        choice = choice_of(_packed_linear, input, "large_matrix", "tiles")
        product.tiles(choice, "matmul", bias, output)
        return
    variants.record(_packed_linear.name, input.dtype, "dots", 1)
    simdgroups = -(-rows // PACKED.constant("rows_of_simdgroup"))
    size = min(simdgroups * SIMDGROUP, few.group_size)
    groups = -(-simdgroups * SIMDGROUP // size)
    others = (bias.contiguous() if bias is not None else product.x, output)
    product.launch("matvec", others, bias is not None, groups, size, product.count)


# --- backward -------------------------------------------------------------------------------------


def _backward_reference(
    grad: Tensor, blocks: Tensor, scales: Optional, rows: int, columns: int, format: str,
    block_size: int = 0,
) -> Tensor:  # fmt: skip
    return grad @ _matrix(grad.dtype, blocks, scales, rows, columns, format, block_size)


def _backward_cost(
    grad: Tensor, blocks: Tensor, scales: Optional, rows: int, columns: int, **_: Any
) -> Cost:
    read = sum(t.nbytes for t in (grad, blocks, scales) if t is not None)
    count = grad.numel() // max(rows, 1)
    return Cost(read, count * columns * grad.element_size(), 2 * count * rows * columns)


def _gradient_case(*shape: Any, **more: Any) -> Case:
    forward = _packed_case(*shape, gradient=True, **more)

    def make(*how: Any) -> tuple[list[Any], dict[str, Any]]:
        (grad, blocks, scales, _, *matrix), named = forward.make(*how)
        return [grad, blocks, scales, *matrix], named

    return Case(forward.name, make)


@operator(
    source="packed.metal",
    reference=_backward_reference,
    cases=[
        _gradient_case((0,), 5, 256, "q4_K"),
        _gradient_case((3,), 33, 512, "q4_K"),
        _gradient_case((2, 17), 67, 256, "q4_K"),
        _gradient_case((1,), 1, 256, "q6_K"),
        _gradient_case((20,), 40, 512, "q6_K"),
        _gradient_case((2,), 31, 1120, "nf4", 64),
        _gradient_case((33,), 35, 96, "nf4", 128),
    ],
    cost=_backward_cost,
    no_gradient="packed_linear can be differentiated once",
)
def _packed_linear_backward(
    grad: Tensor,
    blocks: Tensor,
    scales: Tensor | None,
    rows: int,
    columns: int,
    format: str,
    block_size: int = 0,
) -> Tensor:
    name = "packed_linear_backward"
    _check_weight(name, blocks, scales, rows, columns, format, block_size)
    _checked(name, "grad", grad, rows, blocks, None, rows)
    return _result(name, grad, columns)


@_packed_linear_backward.run
def _(
    result: Tensor,
    grad: Tensor,
    blocks: Tensor,
    scales: Optional,
    rows: int,
    columns: int,
    format: str,
    block_size: int = 0,
) -> None:
    if result.numel() == 0:
        return
    operator: AnyOperator = _packed_linear_backward
    product = _product(grad, blocks, scales, rows, columns, format, block_size)
    few = choice_of(operator, grad, "few_rows", "columns")
    if product.count > few.values["max_rows"]:
        variants.record(operator.name, grad.dtype, "tiles", 1)
        choice = choice_of(operator, grad, "large_matrix", "tiles")
        product.tiles(choice, "matmul_backward", None, result)
        return
    variants.record(operator.name, grad.dtype, "columns", 1)
    size = min(few.group_size, PACKED.constant("most_row_simdgroups") * SIMDGROUP)
    steps = -(-columns // FORMATS[format].step)
    product.launch("matvec_backward", (result,), False, steps, size, product.count)


@_packed_linear.backward(keep=["blocks", "scales"])
def _(call: Call, grad: Tensor) -> Gradients:
    found: dict[str, Tensor] = {}
    if call.needs("input"):
        found["input"] = _packed_linear_backward(
            grad, call.blocks, call.scales, call.rows, call.columns, call.format, call.block_size
        )
    if call.needs("bias"):
        found["bias"] = grad.reshape(math.prod(grad.shape[:-1]), call.rows).sum(0)
    return found


# --- the public function --------------------------------------------------------------------------


def packed_linear(input: Tensor, weight: PackedWeight, bias: Optional = None) -> Tensor:
    """torch.nn.functional.linear with weights in q4_K, q6_K or nf4 blocks, sums in float32.

    There is a gradient for `input` and `bias`, none for weights.
    """
    blocks, scales, rows, columns, format, block_size = weight.arguments
    return _packed_linear(input, blocks, scales, bias, rows, columns, format, block_size)
