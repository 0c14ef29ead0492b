"""Every operator, every argument: what it cannot be is an error that says so, and no more."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import anymetal.linalg
import anymetal.ops  # noqa: F401
from anymetal.ops.declare import OPERATORS, AnyOperator
from anymetal.ops.declare.signature import tensors_of

CPU = torch.device("cpu")
LINALG = "anymetal.linalg"  # has torch's words, which name matrices by letters
ALL = bool(os.environ.get("ANYMETAL_TEST_ALL"))
# Numbers of rounds: a large one is an answer in the year after next.
ROUNDS = {"niter", "steps"}
# The function around the operator has looked at these, or made them.
SETTLED = {
    ("matrix_norm", "ord"),
    ("svd_lowrank", "directions"),
    ("matrix_rank", "atol"),
    ("matrix_rank", "rtol"),
    ("embedding_bag", "mode"),
    *((name, "raising") for name in ("cholesky_ex", "lu_factor_ex", "solve_ex", "inv_ex")),
}
REFUSED = (TypeError, ValueError, NotImplementedError, RuntimeError, IndexError)


def never(value: Any, alone: bool) -> Iterator[tuple[str, Any]]:
    """What no operator takes in place of a value. With one tensor alone a call may be of meta
    tensors."""
    if isinstance(value, torch.Tensor):
        yield from (("text", "bad"), ("an object", object()), ("a number", 5))
        if not alone:
            yield "a meta tensor", value.to("meta")
        yield "a complex tensor", value.to(torch.complex64)
        if value.dim():
            yield "a sparse tensor", value.to_sparse()
    elif isinstance(value, bool | int | float):
        yield from (("text", "bad"), ("an object", object()), ("a list of text", ["a"]))
    elif isinstance(value, str):
        yield from (("another word", "nonsense"), ("a number", 5), ("an object", object()))


def doubtful(value: Any) -> Iterator[tuple[str, Any]]:
    """What an operator may take or not."""
    if isinstance(value, torch.Tensor):
        yield "None", None
        yield "two dimensions more", value[None, None]
        yield "no dimension", value.reshape(-1)[0] if value.numel() else torch.zeros(())
        yield "booleans", value.to(torch.bool)
        if value.dim():
            yield "twice as long", torch.cat([value, value], -1)
            yield "thrice as high", torch.cat([value, value, value], 0)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((str(n), n) for n in (-1, 0, 1.5, math.nan, 1 << 62, 1 << 70))
    elif isinstance(value, float):
        yield from ((str(n), n) for n in (math.nan, -math.inf, -1.0, 0.0, 1j))


def filled(operator: AnyOperator) -> dict[str, Any]:
    """The arguments of the first case that has elements, with the defaults of those left out."""
    for case in operator.cases:
        seed = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
        args, kwargs = case.make(torch.float32, CPU, seed)
        if all(t.numel() for t in args if isinstance(t, torch.Tensor)):
            return operator.signature.bind(args, kwargs)
    raise AssertionError(f"{operator.name} has no case with elements")


def call(operator: AnyOperator, values: dict[str, Any]) -> None:
    args, kwargs = operator.signature.split(values)
    operator(*args, **kwargs)


def wrong_end(operator: AnyOperator, values: dict[str, Any], *, may_end: bool) -> str:
    """What is wrong with how a bad call ended."""
    try:
        call(operator, values)
    except REFUSED as error:
        text = str(error)
        names = (operator.name, operator.name.removesuffix("_backward"), *operator.names)
        # Operators made of others have the words of those.
        through = operator.made_of_others and "argument '" in text
        named = any(name in text for name in names) or operator.__module__.startswith(LINALG)
        named = named or through or "Target -100 is out of bounds" in text
        return "" if named else f"{type(error).__name__}: {text}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if may_end else "accepted"


@pytest.mark.parametrize("name", OPERATORS)
def test_bad_arguments_are_refused_in_words(name: str) -> None:
    operator = OPERATORS[name]
    values = filled(operator)
    alone = len(list(tensors_of(values.values()))) == 1
    ends = {}
    for argument, value in values.items():
        if (name, argument) in SETTLED:
            continue
        for what, bad in never(value, alone):
            tried = fresh(values) | {argument: bad}
            ends[f"{argument} is {what}"] = wrong_end(operator, tried, may_end=False)
        for what, bad in doubtful(value) if ALL else ():
            if argument not in ROUNDS:
                tried = fresh(values) | {argument: bad}
                ends[f"{argument} is {what}"] = wrong_end(operator, tried, may_end=True)
    assert {what: end for what, end in ends.items() if end} == {}


def fresh(values: dict[str, Any]) -> dict[str, Any]:
    return {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in values.items()}
