"""The shapes that are timed: a small one, where the launch is all, up to one past the caches.

An operator may bring its own as `bench`; the table here has the well-known ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymetal.ops.declare import AnyOperator, Case
from anymetal.ops.declare.cases import random_case

# Elements of a tensor, and rows of the widths that models have.
_SIZES = (1 << 12, 1 << 17, 1 << 21)
_ROWS = ((8, 512), (32, 4096), (256, 8192))


def bench_cases(operator: AnyOperator) -> Sequence[Case]:
    """An operator's own cases for benchmarks, those of the table, or the largest of its tests."""
    return operator.bench or BENCH.get(operator.name) or operator.cases[-2:]


def _elements(tensors: int) -> list[Case]:
    return [random_case(*[(size,)] * tensors) for size in _SIZES]


def _axpy(size: int) -> Case:
    pair = random_case((size,), (size,))

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        tensors, _ = pair.make(dtype, device, generator)
        return [0.3, *tensors], {}

    return Case(f"{size}", make)


def _softmax() -> list[Case]:
    along_rows = [random_case(shape, dim=-1) for shape in (*_ROWS, (2, 1 << 18))]
    return [*along_rows, random_case((1024, 512), dim=0)]


BENCH: dict[str, Sequence[Case]] = {
    "fill": [random_case((size,), value=0.1) for size in _SIZES],
    "axpy": [_axpy(size) for size in _SIZES],
    "copy": _elements(1),
    **{name: _softmax() for name in ("softmax", "log_softmax")},
}
