"""Which arguments of a launch are the same memory: Apple's compiler assumes that none are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from anymetal.checker.program import CheckedProgram
from anymetal.checker.views import BufferView
from anymetal.passes.provenance import Root


def aliased(checked: CheckedProgram, views: Sequence[BufferView]) -> frozenset[int]:
    """The buffers that share bytes with another one, where the kernel writes one of the two."""
    found: set[int] = set()
    bound = [view for view in views if view.tensor is not None and view.index is not None]
    for one, other in combinations(bound, 2):
        numbers = {view.index or 0 for view in (one, other)}
        if _overlap(one, other) and any(_writes(checked, number) for number in numbers):
            found |= numbers
    return frozenset(found)


def _overlap(one: BufferView, other: BufferView) -> bool:
    first, second = sorted((one, other), key=lambda view: view.address)
    return second.address < first.address + first.extent and second.extent > 0


def _writes(checked: CheckedProgram, number: int) -> bool:
    return checked.writes(Root("buffer", number))
