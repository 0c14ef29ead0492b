"""One kernel of the wheel with inputs and a reference: what a case is, and how it is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anymetal.evidence.judge import relative_error

Extent = Sequence[int]


@dataclass(frozen=True)
class Check:
    """One result: `got` is read after the launch, `expected` is in float64."""

    what: str
    got: Callable[[], torch.Tensor]
    expected: torch.Tensor

    def error(self) -> float:
        """Largest difference, relative to the largest expected value."""
        got = self.got()
        if got.shape != self.expected.shape:
            raise ValueError(f"{self.what}: {tuple(got.shape)} for {tuple(self.expected.shape)}")
        return relative_error(got, self.expected)


@dataclass(frozen=True)
class Launch:
    """What is passed to the kernel, and what has to come out."""

    arguments: Sequence[Any]
    threads: Extent
    group_size: Extent
    checks: Sequence[Check]
    threadgroup_memory: dict[int, int] = field(default_factory=dict)

    def padded_memory(self) -> dict[int, int]:
        """Metal takes lengths in multiples of 16 bytes."""
        return {index: -(-size // 16) * 16 for index, size in self.threadgroup_memory.items()}


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be off, and why so far."""

    limit: float
    reason: str


# One rounding of the result to its type is half a unit in the last place; a unit is allowed, since
# the float the kernel computes and the float64 reference may lie on two sides of a tie.
FLOAT = Tolerance(2e-6, "a few float roundings and Metal's 4-ulp exp")
FLOAT_SUM = Tolerance(1e-5, "sums of some hundred floats in another order")
FACTORISATION = Tolerance(5e-5, "a factorisation in float of a well-conditioned matrix")
HALF = Tolerance(2.0**-10, "one rounding to half")
BFLOAT = Tolerance(2.0**-7, "one rounding, or truncation, to bfloat")
EXACT = Tolerance(0.0, "moves values without computing")


@dataclass(frozen=True)
class Case:
    """A kernel, a way to call it, and what is known about it.

    `known_wrong` says why the kernel itself gives a wrong result on these inputs; such a case
    must come out wrong. `refused` is a part of the message with which it must be refused.
    """

    file: str
    kernel: str
    make: Callable[[], Launch]
    tolerance: Tolerance
    note: str = ""
    known_wrong: str | None = None
    refused: str | None = None


CASES: list[Case] = []

Maker = Callable[[], Launch]


def case(
    file: str,
    kernel: str,
    tolerance: Tolerance,
    note: str = "",
    known_wrong: str | None = None,
    refused: str | None = None,
) -> Callable[[Maker], Maker]:
    """Enter a function that makes a Launch into the list of cases."""

    def enter(make: Maker) -> Maker:
        CASES.append(Case(file, kernel, make, tolerance, note, known_wrong, refused))
        return make

    return enter


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def unwritten(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An output full of NaN: an element the kernel leaves out cannot pass."""
    return torch.full(shape, math.nan, dtype=dtype)


def check(what: str, got: torch.Tensor, expected: torch.Tensor) -> Check:
    return Check(what, lambda: got, expected.double())
