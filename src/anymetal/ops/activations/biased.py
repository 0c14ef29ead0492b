"""A bias and an activation in one pass: bias_gelu and bias_silu, with the bias gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anymetal.ops.activations.elementwise import (
    GELU,
    SILU,
    SOURCE,
    Activation,
    check_input,
    check_pair,
    choice_for,
    form,
    gradient_of,
    launch_map,
)
from anymetal.ops.declare import variants
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.checks import check_like, check_shape
from anymetal.ops.declare.declare import Case, Cost, Operator
from anymetal.ops.declare.layout import Rows, group_shape, last_dimension_rows

# Rows of one element, of odd lengths, many rows (more than one block of them), none.
_SHAPES = ((0, 5), (4, 0), (1, 1), (3, 31), (5, 32), (2, 2, 33), (300, 4), (1, 4099))


@dataclass(frozen=True)
class BiasedActivation:
    """`activation(input + bias)`, the bias along the last dimension, as an operator."""

    activation: Activation

    @property
    def name(self) -> str:
        return f"bias_{self.activation.name}"

    def declare(self) -> Operator:
        option = ', str approximate="none"' if self.activation.approximate else ""
        forward = Operator(
            f"{self.name}(Tensor input, Tensor bias{option}) -> Tensor",
            SOURCE,
            self.reference,
            cases=self._cases(1),
            cost=_forward_cost,
        )
        backward = Operator(
            f"{self.name}_backward(Tensor grad, Tensor input, Tensor bias{option})"
            " -> (Tensor, Tensor)",
            SOURCE,
            self.reference_backward,
            cases=self._cases(2),
            cost=_backward_cost,
            differentiable=False,
        )
        self._implement(forward, backward)
        self._differentiate(forward, backward)
        return forward

    def reference(
        self, input: torch.Tensor, bias: torch.Tensor, approximate: str | None = None
    ) -> torch.Tensor:
        options = (approximate,) if approximate else ()
        result: torch.Tensor = self.activation.reference(input + bias, *options)
        return result

    def reference_backward(
        self,
        grad: torch.Tensor,
        input: torch.Tensor,
        bias: torch.Tensor,
        approximate: str | None = None,
    ) -> Any:
        return gradient_of(self.reference)(grad, input, bias, approximate)

    def _cases(self, tensors: int) -> list[Case]:
        cases = [random_case(*[shape] * tensors, shape[-1:]) for shape in _SHAPES]
        if self.activation.approximate:
            shapes = [(5, 33)] * tensors
            cases.append(random_case(*shapes, (33,), approximate="tanh"))
        return cases

    def _check(self, name: str, input: torch.Tensor, bias: torch.Tensor) -> None:
        check_input(name, input)
        check_like(name, "bias", bias, "input", input)
        if input.dim() == 0:
            raise ValueError(
                f"{name}: argument 'input' expects at least one dimension, got shape []"
            )
        check_shape(name, "bias", bias, input.shape[-1:], "the last dimension of 'input'")

    def _implement(self, forward: Operator, backward: Operator) -> None:
        @forward.forward
        def _(
            input: torch.Tensor, bias: torch.Tensor, approximate: str | None = None
        ) -> torch.Tensor:
            self._check(forward.name, input, bias)
            output = torch.empty_like(input, memory_format=torch.contiguous_format)
            kernel = f"bias_{self.activation.kernel(approximate)}"
            rows = last_dimension_rows(input, bias.expand_as(input), output)
            launch_map(forward, kernel, rows)
            return output

        @forward.fake
        def _(
            input: torch.Tensor, bias: torch.Tensor, approximate: str | None = None
        ) -> torch.Tensor:
            self._check(forward.name, input, bias)
            self.activation.kernel(approximate)
            return torch.empty_like(input, memory_format=torch.contiguous_format)

        @backward.forward
        def _(
            grad: torch.Tensor,
            input: torch.Tensor,
            bias: torch.Tensor,
            approximate: str | None = None,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            self._check(backward.name, input, bias)
            check_pair(backward.name, "input", input, "grad", grad)
            kernel = f"bias_{self.activation.kernel(approximate)}_backward"
            return _launch_backward(backward, kernel, grad, input, bias.contiguous())

        @backward.fake
        def _(
            grad: torch.Tensor,
            input: torch.Tensor,
            bias: torch.Tensor,
            approximate: str | None = None,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            dense = torch.contiguous_format
            return torch.empty_like(input, memory_format=dense), torch.empty_like(
                bias, memory_format=dense
            )

    def _differentiate(self, forward: Operator, backward: Operator) -> None:
        def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            del output
            ctx.save_for_backward(*inputs[:2])
            ctx.options = inputs[2:]

        def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
            results = backward(grad, *ctx.saved_tensors, *ctx.options)
            return (*results, None) if self.activation.approximate else tuple(results)

        forward.gradient(keep, gradient)
        backward.no_gradient(f"{self.name} can be differentiated once")


def _launch_backward(
    operator: Operator, kernel: str, grad: torch.Tensor, input: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The input's gradient and the sums of its blocks of rows, then the sum of these."""
    input_gradient = torch.empty_like(input, memory_format=torch.contiguous_format)
    bias_gradient = torch.empty_like(bias)
    rows = last_dimension_rows(grad, input, input_gradient)
    if rows.rows == 0 or rows.columns == 0:
        return input_gradient, bias_gradient.zero_()
    choice = choice_for(operator, grad, "columns")
    block = choice.values["rows_per_block"]
    blocks = -(-rows.rows // block)
    sums = torch.empty(blocks, rows.columns, device=grad.device)
    width = _column_width(rows, bias)
    variants.record(operator.name, grad.dtype, "columns", width)
    threads = (rows.columns // width, blocks)
    gradient, x, result = rows.tensors
    operator.kernel(f"{kernel}_{form(width)}", grad)(
        gradient,
        x,
        bias,
        result,
        sums,
        rows.columns,
        rows.rows,
        block,
        list(rows.strides),
        threads=threads,
        group_size=group_shape(threads, choice.group_size),
    )
    operator.kernel("sum_blocks", grad)(
        sums,
        bias_gradient,
        rows.columns,
        blocks,
        threads=rows.columns,
        group_size=min(rows.columns, choice.group_size),
    )
    return input_gradient, bias_gradient


def _column_width(rows: Rows, bias: torch.Tensor) -> int:
    """Four columns a thread where each row and the bias divide into them."""
    whole = rows.columns % 4 == 0
    with_bias = Rows((*rows.tensors, bias), rows.rows, rows.columns, rows.strides)
    return with_bias.width() if whole else 1


def _forward_cost(input: torch.Tensor, bias: torch.Tensor, **options: Any) -> Cost:
    return Cost(read=input.nbytes + bias.nbytes, write=input.nbytes)


def _backward_cost(
    grad: torch.Tensor, input: torch.Tensor, bias: torch.Tensor, **options: Any
) -> Cost:
    return Cost(read=grad.nbytes + input.nbytes + bias.nbytes, write=input.nbytes + bias.nbytes)


_bias_gelu = BiasedActivation(GELU).declare()
_bias_silu = BiasedActivation(SILU).declare()


def bias_gelu(
    input: torch.Tensor, bias: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    """gelu(input + bias), the bias along the last dimension; the sum is never rounded."""
    result: torch.Tensor = _bias_gelu(input, bias, approximate)
    return result


def bias_silu(input: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """silu(input + bias), the bias along the last dimension; the sum is never rounded."""
    result: torch.Tensor = _bias_silu(input, bias)
    return result
