"""Gated products: swiglu and geglu, of two tensors or of one that holds both halves."""

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
    gradient_of,
    launch_map,
)
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.checks import check_like, check_shape
from anymetal.ops.declare.declare import Case, Cost, Operator
from anymetal.ops.declare.layout import as_rows, last_dimension_rows

Option = str | None
_SHAPES = ((0, 5), (), (1,), (31,), (4, 32), (2, 3, 33), (4099,))
_HALVES = ((0, 3), (1,), (3, 31), (2, 3, 32), (4099,))


@dataclass(frozen=True)
class Gated:
    """`activation(gate) * up` as operators: `name(gate, up)`, and `name_packed(input)`.

    A packed input holds the gate in the first half of its last dimension, and its gradient is
    written as one tensor: splitting by hand would cost two.
    """

    name: str
    activation: Activation

    @property
    def option(self) -> str:
        return ', str approximate="none"' if self.activation.approximate else ""

    def declare_pair(self) -> Operator:
        forward = Operator(
            f"{self.name}(Tensor gate, Tensor up{self.option}) -> Tensor",
            SOURCE,
            self.reference,
            cases=self._cases([[shape, shape] for shape in _SHAPES]),
            cost=lambda gate, up, **_: Cost(read=2 * gate.nbytes, write=gate.nbytes),
        )
        backward = Operator(
            f"{self.name}_backward(Tensor grad, Tensor gate, Tensor up{self.option})"
            " -> (Tensor, Tensor)",
            SOURCE,
            self.reference_backward,
            cases=self._cases([[shape] * 3 for shape in _SHAPES]),
            cost=lambda grad, gate, up, **_: Cost(read=3 * gate.nbytes, write=2 * gate.nbytes),
            differentiable=False,
        )
        self._implement_pair(forward, backward)
        self._differentiate(forward, backward, 2)
        return forward

    def declare_packed(self) -> Operator:
        forward = Operator(
            f"{self.name}_packed(Tensor input{self.option}) -> Tensor",
            SOURCE,
            self.reference_packed,
            cases=self._cases([[_doubled(half)] for half in _HALVES]),
            cost=lambda input, **_: Cost(read=input.nbytes, write=input.nbytes // 2),
        )
        backward = Operator(
            f"{self.name}_packed_backward(Tensor grad, Tensor input{self.option}) -> Tensor",
            SOURCE,
            self.reference_packed_backward,
            cases=self._cases([[half, _doubled(half)] for half in _HALVES]),
            cost=lambda grad, input, **_: Cost(grad.nbytes + input.nbytes, input.nbytes),
            differentiable=False,
        )
        self._implement_packed(forward, backward)
        self._differentiate(forward, backward, 1)
        return forward

    def reference(
        self, gate: torch.Tensor, up: torch.Tensor, approximate: Option = None
    ) -> torch.Tensor:
        options = (approximate,) if approximate else ()
        result: torch.Tensor = self.activation.reference(gate, *options) * up
        return result

    def reference_backward(
        self,
        grad: torch.Tensor,
        gate: torch.Tensor,
        up: torch.Tensor,
        approximate: Option = None,
    ) -> Any:
        return gradient_of(self.reference)(grad, gate, up, approximate)

    def reference_packed(self, input: torch.Tensor, approximate: Option = None) -> torch.Tensor:
        gate, up = input.chunk(2, -1)
        return self.reference(gate, up, approximate)

    def reference_packed_backward(
        self, grad: torch.Tensor, input: torch.Tensor, approximate: Option = None
    ) -> Any:
        return gradient_of(self.reference_packed)(grad, input, approximate)

    def _kernel(self, approximate: Option) -> str:
        chosen = self.activation.kernel(approximate)
        return self.name + chosen.removeprefix(self.activation.name)

    def _cases(self, calls: list[list[tuple[int, ...]]]) -> list[Case]:
        cases = [random_case(*shapes) for shapes in calls]
        if self.activation.approximate:
            cases.append(random_case(*calls[-1], approximate="tanh"))
        return cases

    def _implement_pair(self, forward: Operator, backward: Operator) -> None:
        @forward.forward
        def _(gate: torch.Tensor, up: torch.Tensor, approximate: Option = None) -> torch.Tensor:
            check_pair(self.name, "gate", gate, "up", up)
            output = torch.empty_like(gate)
            launch_map(forward, self._kernel(approximate), as_rows(gate, up, output))
            return output

        @forward.fake
        def _(gate: torch.Tensor, up: torch.Tensor, approximate: Option = None) -> torch.Tensor:
            check_pair(self.name, "gate", gate, "up", up)
            self._kernel(approximate)
            return torch.empty_like(gate)

        @backward.forward
        def _(
            grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, approximate: Option = None
        ) -> tuple[torch.Tensor, torch.Tensor]:
            check_pair(backward.name, "gate", gate, "up", up)
            check_pair(backward.name, "gate", gate, "grad", grad)
            results = torch.empty_like(gate), torch.empty_like(gate)
            kernel = f"{self._kernel(approximate)}_backward"
            launch_map(backward, kernel, as_rows(grad, gate, up, *results))
            return results

        @backward.fake
        def _(
            grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, approximate: Option = None
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.empty_like(gate), torch.empty_like(gate)

    def _implement_packed(self, forward: Operator, backward: Operator) -> None:
        @forward.forward
        def _(input: torch.Tensor, approximate: Option = None) -> torch.Tensor:
            output = input.new_empty(_half(forward.name, input))
            kernel = self._kernel(approximate)
            launch_map(forward, kernel, last_dimension_rows(*input.chunk(2, -1), output))
            return output

        @forward.fake
        def _(input: torch.Tensor, approximate: Option = None) -> torch.Tensor:
            self._kernel(approximate)
            return input.new_empty(_half(forward.name, input))

        @backward.forward
        def _(grad: torch.Tensor, input: torch.Tensor, approximate: Option = None) -> torch.Tensor:
            shape = _half(backward.name, input)
            check_like(backward.name, "grad", grad, "input", input)
            check_shape(backward.name, "grad", grad, shape, "half of 'input'")
            result = torch.empty_like(input, memory_format=torch.contiguous_format)
            halves = last_dimension_rows(grad, *input.chunk(2, -1), *result.chunk(2, -1))
            launch_map(backward, f"{self._kernel(approximate)}_backward", halves)
            return result

        @backward.fake
        def _(grad: torch.Tensor, input: torch.Tensor, approximate: Option = None) -> torch.Tensor:
            return torch.empty_like(input, memory_format=torch.contiguous_format)

    def _differentiate(self, forward: Operator, backward: Operator, tensors: int) -> None:
        def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            del output
            ctx.save_for_backward(*inputs[:tensors])
            ctx.options = inputs[tensors:]

        def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
            results = backward(grad, *ctx.saved_tensors, *ctx.options)
            results = (results,) if tensors == 1 else tuple(results)
            return (*results, None) if self.activation.approximate else results

        forward.gradient(keep, gradient)
        backward.no_gradient(f"{forward.name} can be differentiated once")


def _doubled(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 2 * shape[-1])


def _half(name: str, input: torch.Tensor) -> list[int]:
    """The shape of the result of a packed input."""
    check_input(name, input)
    if input.dim() == 0 or input.shape[-1] % 2:
        raise ValueError(
            f"{name}: argument 'input' expects an even last dimension (the gate, then the up"
            f" projection), got shape {list(input.shape)}"
        )
    return [*input.shape[:-1], input.shape[-1] // 2]


_swiglu = Gated("swiglu", SILU).declare_pair()
_swiglu_packed = Gated("swiglu", SILU).declare_packed()
_geglu = Gated("geglu", GELU).declare_pair()
_geglu_packed = Gated("geglu", GELU).declare_packed()


def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up. With one tensor, the halves of its last dimension are the gate and up."""
    result: torch.Tensor = _swiglu_packed(gate) if up is None else _swiglu(gate, up)
    return result


def geglu(
    gate: torch.Tensor, up: torch.Tensor | None = None, *, approximate: str = "none"
) -> torch.Tensor:
    """gelu(gate) * up. With one tensor, the halves of its last dimension are the gate and up."""
    both = (gate,) if up is None else (gate, up)
    result: torch.Tensor = (_geglu_packed if up is None else _geglu)(*both, approximate)
    return result
