"""The shapes that are timed: a small one, where the launch is all, up to one past the caches."""

from __future__ import annotations

from collections.abc import Sequence

from anymetal.ops.declare import Case, Operator

BENCH: dict[str, Sequence[Case]] = {}


def bench_cases(operator: Operator) -> Sequence[Case]:
    """An operator's own cases for benchmarks, those of the table, or the largest of its tests."""
    return operator.bench or BENCH.get(operator.name) or operator.cases[-2:]
