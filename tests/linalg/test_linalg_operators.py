"""The operators behind the functions: numbers, gradients, registration, strides and devices."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import torch
from torch import Tensor

import anymetal.linalg
from anymetal.evidence.health import Plan, examine
from anymetal.evidence.judge import judge
from anymetal.launch.guarded import watched
from anymetal.ops.declare import OPERATORS, AnyOperator, Case

NAMES = [n for n, o in OPERATORS.items() if o.__module__.startswith(anymetal.linalg.__name__)]
CPU = torch.device("cpu")
each_operator = pytest.mark.parametrize("name", NAMES)


def made(case: Case) -> tuple[list[Any], dict[str, Any]]:
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    return case.make(torch.float32, CPU, generator)


def doubled(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def filled(operator: AnyOperator) -> list[Case]:
    return [case for case in operator.cases if all(t.numel() for t in made(case)[0])]


def test_every_function_is_an_operator() -> None:
    functions = [name for name in anymetal.linalg.__all__ if name != "LinAlgError"]
    assert not [name for name in functions if not {name, f"{name}_ex"} & set(NAMES)]


def test_gradient_through_others_factorises_once() -> None:
    (a,), _ = made(OPERATORS["svdvals"].cases[1])
    with watched() as factorised:
        anymetal.linalg.svd(a, full_matrices=False)
    with watched() as launches:
        anymetal.linalg.svdvals(a.requires_grad_()).sum().backward()
    assert len(launches) == len(factorised)


@each_operator
def test_health(name: str) -> None:
    """All dtypes against float64, gradients, opcheck, and the checker; all cases in `health`."""
    health = examine(OPERATORS[name], Plan(CPU, cases=3))
    assert health.passed, health.findings


def spaced(tensor: Tensor) -> Tensor:
    """Every other element of rows that lie apart, with NaN between them."""
    around = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 3), torch.nan)
    if not tensor.is_floating_point():
        around = torch.zeros(around.shape, dtype=tensor.dtype)
    inside = around[..., 1 : 1 + 2 * tensor.shape[-1] : 2]
    return inside.copy_(tensor)


def transposed(tensor: Tensor) -> Tensor:
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


@pytest.mark.parametrize("strides", [spaced, transposed])
@each_operator
def test_strided_inputs(name: str, strides: Any) -> None:
    operator = OPERATORS[name]
    for case in filled(operator)[-2:]:
        args, keywords = made(case)
        ours = operator(*(strides(arg) for arg in args), **keywords)
        torchs = (operator.baseline or operator.reference)(*args, **keywords)
        exact = operator.reference(*(doubled(arg) for arg in args), **keywords)
        judgement = judge(ours, torchs, exact, torch.float32)
        assert judgement.passed, f"{name} {case.name}: {judgement}"


@each_operator
def test_virtual_mps_gives_the_same(name: str, mps: torch.device) -> None:
    operator = OPERATORS[name]
    args, keywords = made(filled(operator)[-1])
    here, there = operator(*args, **keywords), operator(*(a.to(mps) for a in args), **keywords)
    if isinstance(here, Tensor):
        here, there = (here,), (there,)
    for ours, theirs in zip(here, there, strict=True):
        assert theirs.is_mps
        torch.testing.assert_close(theirs.cpu(), ours, rtol=0, atol=0)
