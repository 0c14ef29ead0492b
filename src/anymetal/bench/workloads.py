"""The shapes that are timed: a small one, where the launch is all, up to one past the caches.

An operator may bring its own as `bench`; the table here has the well-known ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from anymetal.ops.cases import random_case
from anymetal.ops.declare import Case, Operator

# Elements of a tensor, and rows of the widths that models have.
_SIZES = (1 << 12, 1 << 17, 1 << 21)
_ROWS = ((8, 512), (32, 4096), (256, 8192))


def bench_cases(operator: Operator) -> Sequence[Case]:
    """An operator's own cases for benchmarks, those of the table, or the largest of its tests."""
    return operator.bench or BENCH.get(operator.name) or operator.cases[-2:]


def _elements(tensors: int) -> list[Case]:
    return [random_case(*[(size,)] * tensors) for size in _SIZES]


def _with_bias() -> list[Case]:
    return [random_case(shape, shape[-1:]) for shape in _ROWS]


BENCH: dict[str, Sequence[Case]] = {
    **{name: _elements(1) for name in ("silu", "gelu", "sigmoid", "relu_squared")},
    **{name: _elements(2) for name in ("swiglu", "geglu")},
    **{name: _with_bias() for name in ("bias_gelu", "bias_silu")},
}
