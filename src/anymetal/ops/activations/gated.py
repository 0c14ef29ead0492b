"""Gated products: swiglu and geglu, of two tensors or of one that holds both halves."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.ops.activations.plain import GELU, SILU, SOURCE, Activation
from anymetal.ops.declare import Case, Cost, Operator, operator
from anymetal.ops.declare.cases import element_cases, random_case
from anymetal.ops.declare.checks import check_input, check_like, check_pair, check_shape
from anymetal.ops.declare.elementwise import launch_map
from anymetal.ops.declare.layout import as_rows, last_dimension_rows

Tensor = torch.Tensor

_SHAPES = ((0, 5), (), (1,), (31,), (4, 32), (2, 3, 33), (4099,))
# A packed input is twice as wide.
_PACKED = ((0, 6), (2,), (3, 62), (2, 3, 64), (8198,))


def _cases(activation: Activation, calls: list[list[tuple[int, ...]]]) -> list[Case]:
    cases = [random_case(*shapes) for shapes in calls]
    if activation.has_tanh:
        cases.append(random_case(*calls[-1], approximate="tanh"))
    return cases


def _declare_pair(name: str, activation: Activation) -> Operator[..., Tensor]:
    """`activation(gate) * up`, and its gradient."""

    @operator(
        name=name,
        source=SOURCE,
        reference=lambda gate, up, *a, **k: activation.reference(gate, *a, **k) * up,
        naive=lambda gate, up, *a, **k: activation.naive(gate, *a, **k) * up,
        cases=_cases(activation, [[shape, shape] for shape in _SHAPES]),
        bench=element_cases(2),
        cost=lambda gate, up, **_: Cost(read=2 * gate.nbytes, write=gate.nbytes),
        mixed="promote",
        twice=True,
    )
    @activation.option
    def forward(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
        check_pair(name, "gate", gate, "up", up)
        activation.kernel(name, approximate)
        return torch.empty_like(gate)

    @forward.run
    def _(output: Tensor, gate: Tensor, up: Tensor, approximate: str = "none") -> None:
        launch_map(forward, activation.kernel(name, approximate), as_rows(gate, up, output))

    @forward.gradient(
        name=f"{name}_backward",
        cost=lambda grad, gate, up, **_: Cost(read=3 * gate.nbytes, write=2 * gate.nbytes),
    )
    @activation.option
    def backward(
        grad: Tensor, gate: Tensor, up: Tensor, approximate: str = "none"
    ) -> tuple[Tensor, Tensor]:
        check_pair(backward.name, "gate", gate, "up", up)
        check_pair(backward.name, "gate", gate, "grad", grad)
        return torch.empty_like(gate), torch.empty_like(gate)

    @backward.run
    def _(
        gradients: tuple[Tensor, Tensor],
        grad: Tensor,
        gate: Tensor,
        up: Tensor,
        approximate: str = "none",
    ) -> None:
        kernel = f"{activation.kernel(name, approximate)}_backward"
        launch_map(backward, kernel, as_rows(grad, gate, up, *gradients))

    return forward


def _declare_packed(name: str, activation: Activation) -> Operator[..., Tensor]:
    """The same of one tensor: the gate is the first half of its last dimension.

    The gradient is written as one tensor, where splitting by hand would cost two.
    """

    def halves(function: Any) -> Any:
        def of_halves(input: Tensor, *option: Any, **options: Any) -> Tensor:
            gate, up = input.chunk(2, -1)
            result: Tensor = function(gate, *option, **options) * up
            return result

        return of_halves

    @operator(
        name=f"{name}_packed",
        source=SOURCE,
        reference=halves(activation.reference),
        naive=halves(activation.naive),
        cases=_cases(activation, [[shape] for shape in _PACKED]),
        bench=element_cases(1),
        cost=lambda input, **_: Cost(read=input.nbytes, write=input.nbytes // 2),
        twice=True,
    )
    @activation.option
    def forward(input: Tensor, approximate: str = "none") -> Tensor:
        activation.kernel(name, approximate)
        return input.new_empty(_half(f"{name}_packed", input))

    @forward.run
    def _(output: Tensor, input: Tensor, approximate: str = "none") -> None:
        rows = last_dimension_rows(*input.chunk(2, -1), output)
        launch_map(forward, activation.kernel(name, approximate), rows)

    @forward.gradient(
        name=f"{name}_packed_backward",
        cost=lambda grad, input, **_: Cost(grad.nbytes + input.nbytes, input.nbytes),
    )
    @activation.option
    def backward(grad: Tensor, input: Tensor, approximate: str = "none") -> Tensor:
        shape = _half(backward.name, input)
        check_like(backward.name, "grad", grad, "input", input)
        check_shape(backward.name, "grad", grad, shape, "half of 'input'")
        return torch.empty_like(input, memory_format=torch.contiguous_format)

    @backward.run
    def _(result: Tensor, grad: Tensor, input: Tensor, approximate: str = "none") -> None:
        rows = last_dimension_rows(grad, *input.chunk(2, -1), *result.chunk(2, -1))
        launch_map(backward, f"{activation.kernel(name, approximate)}_backward", rows)

    return forward


def _half(name: str, input: Tensor) -> list[int]:
    """The shape of the result of a packed input."""
    check_input(name, input)
    if input.dim() == 0 or input.shape[-1] % 2:
        raise ValueError(
            f"{name}: argument 'input' expects an even last dimension (the gate, then the up"
            f" projection), got shape {list(input.shape)}"
        )
    return [*input.shape[:-1], input.shape[-1] // 2]


_swiglu, _swiglu_packed = _declare_pair("swiglu", SILU), _declare_packed("swiglu", SILU)
_geglu, _geglu_packed = _declare_pair("geglu", GELU), _declare_packed("geglu", GELU)


def swiglu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """silu(gate) * up. With one tensor, the halves of its last dimension are the gate and up."""
    return _swiglu_packed(gate) if up is None else _swiglu(gate, up)


def geglu(gate: Tensor, up: Tensor | None = None, *, approximate: str = "none") -> Tensor:
    """gelu(gate) * up. With one tensor, the halves of its last dimension are the gate and up."""
    if up is None:
        return _geglu_packed(gate, approximate)
    return _geglu(gate, up, approximate)
