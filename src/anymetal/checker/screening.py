"""Screening: a first run of a launch, by all workers and with large cells, to see if there is
anything to find.

Mostly there is nothing, and that is all. Otherwise buffers are put back as they were, and the
launch is done anew by one worker with cells for single elements: what is reported comes from there,
is exact, and is the same every time. So screening may err on the side of doubt. It cannot overlook
a conflict but in one case: two workers touch the same cell in the same few nanoseconds, and no two
others of the launch do so at any other time.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

from anymetal.checker.aliasing import aliased
from anymetal.checker.launch_state import Dispatch, Plan
from anymetal.checker.layouts import gaps_of
from anymetal.checker.program import CheckedProgram
from anymetal.checker.views import BufferView
from anymetal.passes.provenance import UNKNOWN, Root

# Below these, waking other processors costs more than it gives, and two of few threadgroups are
# more likely to touch the same cell at the same time.
LEAST_GROUPS = 64
LEAST_THREADS = 1 << 14
_MOST_WORKERS = 32


def may_be_screened(
    checked: CheckedProgram, dispatch: Dispatch, views: Sequence[BufferView]
) -> bool:
    """Whether two runs of the launch are as good as one: nobody sees the order of threadgroups, and
    nothing is printed. Memory that must be looked at access by access is looked at once."""
    if dispatch.groups < LEAST_GROUPS or math.prod(dispatch.threads) < LEAST_THREADS:
        return False
    if not checked.in_any_order or checked.metadata["uses_log"]:
        return False
    return not aliased(checked, views) and not any(map(_has_gaps, views))


def _has_gaps(view: BufferView) -> bool:
    return view.index is not None and gaps_of(view) is not None


def screening_plan(dispatch: Dispatch) -> Plan:
    return Plan(min(dispatch.workers, dispatch.groups, _MOST_WORKERS), is_screening=True)


class Kept:
    """What a launch may overwrite and a second run would read, or do differently for having read
    something else."""

    def __init__(self, checked: CheckedProgram, views: Sequence[BufferView]) -> None:
        written = [view for view in views if _is_written(checked, view)]
        is_needed = checked.writes(UNKNOWN) or any(_is_read(checked, view) for view in written)
        self._bytes = [
            (view.address, ctypes.string_at(view.address, view.extent))
            for view in (written if is_needed else ())
        ]

    def put_back(self) -> None:
        for address, before in self._bytes:
            ctypes.memmove(address, before, len(before))


def _root(view: BufferView) -> Root:
    return UNKNOWN if view.index is None else Root("buffer", view.index)


def _is_written(checked: CheckedProgram, view: BufferView) -> bool:
    return checked.writes(_root(view)) or checked.writes(UNKNOWN)


def _is_read(checked: CheckedProgram, view: BufferView) -> bool:
    return checked.is_input(_root(view)) or checked.is_input(UNKNOWN)
