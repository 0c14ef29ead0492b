"""What people write where there is no fused operator: the third contender of the benchmarks.

An operator may bring its own as `naive`; the table here has the well-known ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anymetal.ops.declare import Operator

Function = Callable[..., Any]

NAIVE: dict[str, Function] = {}


def naive_of(operator: Operator) -> Function | None:
    """The composition of plain torch operators that does the same, or None."""
    return operator.naive or NAIVE.get(operator.name)
