"""A bias and an activation in one pass: bias_gelu and bias_silu, with the bias gradient."""

from __future__ import annotations

import torch

from anymetal.ops.activations.plain import GELU, SILU, SOURCE, Activation
from anymetal.ops.declare import AnyOperator, Cost, Operator, operator, variants
from anymetal.ops.declare.cases import ROWS, random_case
from anymetal.ops.declare.checks import check_input, check_like, check_pair, check_shape
from anymetal.ops.declare.elementwise import choice_for, form, launch_map
from anymetal.ops.declare.layout import Rows, group_shape, last_dimension_rows

Tensor = torch.Tensor

# Rows of one element, of odd lengths, many rows (more than one block of them), none.
_SHAPES = ((0, 5), (4, 0), (1, 1), (3, 31), (5, 32), (2, 2, 33), (300, 4), (1, 4099))


def _declare(activation: Activation) -> Operator[..., Tensor]:
    """`activation(input + bias)`, the bias along the last dimension, and its gradient."""
    name = f"bias_{activation.name}"
    cases = [random_case(shape, shape[-1:]) for shape in _SHAPES]
    if activation.has_tanh:
        cases.append(random_case((5, 33), (33,), approximate="tanh"))

    @operator(
        name=name,
        source=SOURCE,
        reference=lambda input, bias, *option, **o: activation.reference(
            input + bias, *option, **o
        ),
        naive=lambda input, bias, *a, **k: activation.naive(input + bias, *a, **k),
        cases=cases,
        bench=[random_case(shape, shape[-1:]) for shape in ROWS],
        cost=lambda input, bias, **_: Cost(read=input.nbytes + bias.nbytes, write=input.nbytes),
        mixed="promote",
        twice=True,
    )
    @activation.option
    def forward(input: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
        _check(name, input, bias)
        activation.kernel(name, approximate)
        return _dense(input)

    @forward.run
    def _(output: Tensor, input: Tensor, bias: Tensor, approximate: str = "none") -> None:
        rows = last_dimension_rows(input, bias.expand_as(input), output)
        launch_map(forward, activation.kernel(name, approximate), rows)

    @forward.gradient(
        name=f"{name}_backward",
        cost=lambda grad, input, bias, **_: Cost(
            read=grad.nbytes + input.nbytes + bias.nbytes, write=input.nbytes + bias.nbytes
        ),
    )
    @activation.option
    def backward(
        grad: Tensor, input: Tensor, bias: Tensor, approximate: str = "none"
    ) -> tuple[Tensor, Tensor]:
        _check(backward.name, input, bias)
        check_pair(backward.name, "input", input, "grad", grad)
        return _dense(input), _dense(bias)

    @backward.run
    def _(
        gradients: tuple[Tensor, Tensor],
        grad: Tensor,
        input: Tensor,
        bias: Tensor,
        approximate: str = "none",
    ) -> None:
        rows = last_dimension_rows(grad, input, gradients[0])
        kernel = f"{activation.kernel(name, approximate)}_backward"
        _launch_backward(backward, kernel, rows, bias.contiguous(), gradients[1])

    return forward


def _check(name: str, input: Tensor, bias: Tensor) -> None:
    check_input(name, input)
    check_like(name, "bias", bias, "input", input)
    if input.dim() == 0:
        raise ValueError(f"{name}: argument 'input' expects at least one dimension, got shape []")
    check_shape(name, "bias", bias, input.shape[-1:], "the last dimension of 'input'")


def _launch_backward(
    operator: AnyOperator, kernel: str, rows: Rows, bias: Tensor, bias_gradient: Tensor
) -> None:
    """The input's gradient and the sums of its blocks of rows, then the sum of these."""
    if rows.rows == 0 or rows.columns == 0:
        bias_gradient.zero_()
        return
    choice = choice_for(operator, bias, "columns")
    block = choice.values["rows_per_block"]
    blocks = -(-rows.rows // block)
    sums = torch.empty(blocks, rows.columns, device=bias.device)
    width = _column_width(rows, bias)
    variants.record(operator.name, bias.dtype, "columns", width)
    threads = (rows.columns // width, blocks)
    gradient, x, result = rows.tensors
    sizes = {
        "columns": rows.columns,
        "rows": rows.rows,
        "block": block,
        "blocks": blocks,
        "strides": rows.strides,
    }
    operator.kernel(f"{kernel}_{form(width)}", bias)(
        gradient, x, bias, result, sums, sizes,
        threads=threads, group_size=group_shape(threads, choice.group_size),
    )  # fmt: skip
    operator.kernel("sum_blocks", bias)(
        sums, bias_gradient, sizes,
        threads=rows.columns, group_size=min(rows.columns, choice.group_size),
    )  # fmt: skip


def _column_width(rows: Rows, bias: Tensor) -> int:
    """Four columns a thread where each row and the bias divide into them."""
    whole = rows.columns % 4 == 0
    with_bias = Rows((*rows.tensors, bias), rows.rows, rows.columns, rows.strides)
    return with_bias.width() if whole else 1


def _dense(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


_bias_gelu = _declare(GELU)
_bias_silu = _declare(SILU)


def bias_gelu(input: Tensor, bias: Tensor, *, approximate: str = "none") -> Tensor:
    """gelu(input + bias), the bias along the last dimension; the sum is never rounded."""
    return _bias_gelu(input, bias, approximate)


def bias_silu(input: Tensor, bias: Tensor) -> Tensor:
    """silu(input + bias), the bias along the last dimension; the sum is never rounded."""
    return _bias_silu(input, bias)
