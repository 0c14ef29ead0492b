"""Every operator under autocast, with tensors of several dtypes, and linalg's in forward mode and
differentiated twice: right, or refused in words."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from judging import doubled
from test_as_torch import second_derivatives, tangents

import anymetal.linalg
import anymetal.ops  # noqa: F401
from anymetal.ops.declare import OPERATORS, AnyOperator
from anymetal.ops.declare.signature import tensors_of

CPU = torch.device("cpu")
STEP = 1 if os.environ.get("ANYMETAL_TEST_ALL") else 23
FUNCTIONAL = [name for name, operator in OPERATORS.items() if not operator.mutates][::STEP]
LINALG = [n for n, o in OPERATORS.items() if o.__module__.startswith("anymetal.linalg")][
    :: STEP // 3 + 1
]
REFUSED = (TypeError, ValueError, NotImplementedError, RuntimeError)
# Their results are decided by comparisons: a small change of the input may be a large one.
DECIDED = {"quantize", "matrix_rank"}


def filled(operator: AnyOperator) -> tuple[list[Any], dict[str, Any]]:
    for case in operator.cases:
        seed = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
        args, kwargs = case.make(torch.float32, CPU, seed)
        if all(t.numel() for t in args if isinstance(t, torch.Tensor)):
            return args, kwargs
    raise AssertionError(f"{operator.name} has no case with elements")


def floats(results: Any) -> Iterator[torch.Tensor]:
    return (t.float() for t in tensors_of([results]) if t.is_floating_point() and t.numel())


def assert_near(mine: Any, expected: Any) -> None:
    """As near as bfloat16 is."""
    for ours, theirs in zip(floats(mine), floats(expected), strict=True):
        size = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.05 * size + 1e-3)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_autocast_gives_the_same_or_is_refused(name: str) -> None:
    operator = OPERATORS[name]
    args, kwargs = filled(operator)
    plain = operator(*args, **kwargs)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lower = operator(*args, **kwargs)
    except REFUSED as error:
        assert name in str(error) or "argument" in str(error), error
        return
    if name not in DECIDED:
        assert_near(lower, plain)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_mixed_dtypes_give_the_same_or_are_refused(name: str) -> None:
    """Each tensor in turn has another dtype than the rest."""
    operator = OPERATORS[name]
    args, kwargs = filled(operator)
    plain = operator(*args, **kwargs)
    places = [
        i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_floating_point()
    ]
    for place in places if len(places) > 1 else ():
        mixed = [a.bfloat16() if i == place else a for i, a in enumerate(args)]
        try:
            result = operator(*mixed, **kwargs)
        except REFUSED as error:
            assert any(word in str(error) for word in ("argument", "dtype", name)), error
        else:
            if name not in DECIDED:
                assert_near(result, plain)


@pytest.mark.parametrize("name", LINALG)
def test_tangents_of_linalg_are_right_or_refused(name: str) -> None:
    operator = OPERATORS[name]
    args, kwargs = filled(operator)
    try:
        mine = tangents(operator, args, kwargs)
    except (NotImplementedError, RuntimeError) as error:
        assert "forward" in str(error) or "no gradient" in str(error), error
        return
    exact = tangents(operator.reference, doubled(args), kwargs)
    for ours, expected in zip(mine, exact, strict=True):
        assert (ours is None) == (expected is None)
        if ours is not None:
            size = float(expected.abs().max()) if expected.numel() else 0.0
            torch.testing.assert_close(ours.double(), expected, rtol=1e-2, atol=1e-3 * size + 1e-4)


@pytest.mark.parametrize("name", LINALG)
def test_second_derivatives_of_linalg_are_right_or_refused(name: str) -> None:
    operator = OPERATORS[name]
    if not operator.differentiable:
        return
    args, kwargs = filled(operator)
    try:
        mine = second_derivatives(operator, args, kwargs)
    except RuntimeError as error:
        assert "no gradient" in str(error) or "differentiated once" in str(error), error
        return
    exact = second_derivatives(operator.reference, doubled(args), kwargs)
    for ours, expected in zip(mine, exact, strict=True):
        if expected is None or not expected.any():
            assert ours is None or not ours.any()
        else:
            assert ours is not None
            size = float(expected.abs().max())
            torch.testing.assert_close(ours.double(), expected, rtol=5e-2, atol=1e-3 * size + 1e-6)
