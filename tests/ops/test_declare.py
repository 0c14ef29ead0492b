"""Declarations: an operator over lists of tensors, and mistakes that are refused when declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from anymetal.ops.declare import OPERATORS, AnyOperator, Call, Gradients, operator
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.checks import check_pair
from anymetal.ops.declare.elementwise import launch_map
from anymetal.ops.declare.layout import as_rows

Tensor = torch.Tensor


def _reference(params: list[Tensor], grads: list[Tensor], rate: float) -> None:
    for parameter, gradient in zip(params, grads, strict=True):
        parameter.sub_(gradient, alpha=rate)


@operator(
    source="declared.metal",
    reference=_reference,
    cases=[],
    mutates=["params"],
    no_gradient="a step of an optimizer has none",
)
def declared_descend(params: list[Tensor], grads: list[Tensor], rate: float) -> None:
    for i, (parameter, gradient) in enumerate(zip(params, grads, strict=True)):
        check_pair("declared_descend", f"params[{i}]", parameter, f"grads[{i}]", gradient)


@declared_descend.run
def _(params: list[Tensor], grads: list[Tensor], rate: float) -> None:
    for parameter, gradient in zip(params, grads, strict=True):
        launch_map(declared_descend, "descend", as_rows(gradient, parameter), rate=rate)


@operator(source="declared.metal", reference=lambda tensors: sum(tensors), cases=[])
def declared_sum(tensors: list[Tensor]) -> Tensor:
    return torch.empty_like(tensors[0])


@declared_sum.run
def _(output: Tensor, tensors: list[Tensor]) -> None:
    output.copy_(torch.stack(tensors).sum(0))


@declared_sum.backward()
def _(call: Call, grad: Tensor) -> Gradients:
    return {"tensors": [grad, 2 * grad]}


for _name in ("declared_descend", "declared_sum"):
    del OPERATORS[_name]


@pytest.fixture
def lists() -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    torch.manual_seed(2)
    yield [torch.randn(3, 5), torch.randn(31)], [torch.randn(3, 5), torch.randn(31)]


def test_schema_of_lists() -> None:
    schema = str(declared_descend.overload._schema)
    assert schema.startswith("anymetal::declared_descend(Tensor(a0!)[] params, Tensor[] grads")
    assert schema.endswith("-> ()")


def test_many_tensors_are_mutated(lists: Any) -> None:
    params, grads = lists
    expected = [parameter.clone() for parameter in params]
    _reference(expected, grads, 0.5)
    versions = [parameter._version for parameter in params]
    declared_descend(params, grads, 0.5)
    for mine, theirs, version in zip(params, expected, versions, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert mine._version > version


def test_many_tensors_pass_opcheck_and_compile(lists: Any) -> None:
    params, grads = lists
    torch.library.opcheck(declared_descend.overload, (params, grads, 0.5))
    mine, theirs = ([p.clone() for p in params] for _ in range(2))
    torch.compile(declared_descend, fullgraph=True, backend="aot_eager")(mine, grads, 0.5)
    declared_descend(theirs, grads, 0.5)
    for ours, eager in zip(mine, theirs, strict=True):
        assert torch.equal(ours, eager)
    torch._dynamo.reset()


def test_many_tensors_refuse_gradients(lists: Any) -> None:
    params, grads = lists
    params[0].requires_grad_()
    reason = "anymetal::declared_descend has no gradient: a step of an optimizer has none"
    with pytest.raises(RuntimeError, match=reason):
        declared_descend(params, grads, 0.5)
    with torch.no_grad():
        declared_descend(params, grads, 0.5)


def test_gradients_of_a_list(lists: Any) -> None:
    tensors = [torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)]
    result = declared_sum(tensors)
    assert torch.equal(result, torch.full((4,), 2.0))
    first, second = torch.autograd.grad(result.sum(), tensors)
    assert torch.equal(second, 2 * first)
    with pytest.raises(TypeError, match=r"params\[0\]"):
        declared_descend([torch.ones(2).int()], [torch.ones(2)], 0.5)


def declare(name: str = "declared_wrongly", **options: Any) -> AnyOperator:
    @operator(
        name=name,
        source="declared.metal",
        reference=torch.neg,
        cases=[random_case((3,))],
        **options,
    )
    def room(input: Tensor) -> Tensor:
        return torch.empty_like(input)

    return room


def test_mistakes_are_refused_when_declared() -> None:
    with pytest.raises(ValueError, match=r"mutates \['output'\], which it does not take"):
        declare(mutates=["output"])
    with pytest.raises(ValueError, match="`functional` needs one mutated argument"):
        declare(functional=torch.neg)
    made = declare()
    del OPERATORS["declared_wrongly"]
    with pytest.raises(ValueError, match=r"keeps \['x'\], no arguments or results of it"):
        made.backward(keep=["x"])
    with pytest.raises(NotImplementedError, match="no function is registered by `run`"):
        made(torch.ones(2))
    with pytest.raises(ValueError, match="'silu' is declared twice"):
        declare(name="silu")


def test_gradient_uses_what_is_kept() -> None:
    made = OPERATORS["silu"]
    call = Call("silu", {}, {}, frozenset(["input"]))
    assert call.needs("input") and not call.needs("output")
    with pytest.raises(AttributeError, match="silu: its gradient uses 'input', which is not kept"):
        call.input  # noqa: B018
    assert made.kept == {"input"}
