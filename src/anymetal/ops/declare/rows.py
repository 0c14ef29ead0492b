"""Rows go in; out comes how a kernel is launched over them: the ladder of row strategies.

    single_simdgroup   a simdgroup a row, several rows a threadgroup; the row stays in registers
    single_group       a threadgroup a row, which stays in registers
    two_phase          several threadgroups a row, each a chunk; for a few long rows
    looped             a threadgroup walks along a row

Kernels see the row as the second coordinate of the grid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import variants
from anymetal.ops.declare.elementwise import choice_for, form
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import Rows
from anymetal.ops.declare.operator import AnyOperator
from anymetal.ops.declare.pieces import piece_of
from anymetal.policy.policy import Choice

HELD = ("single_simdgroup", "single_group")
# Elements that a kernel of shared/reduced_rows.h takes in one step.
STEP = 4


@dataclass(frozen=True)
class Plan:
    """A strategy with its launch; `chunk` columns are what a threadgroup takes of a shared row."""

    strategy: str
    choice: Choice
    rows: int
    columns: int
    team: int  # threads that share a row, or a chunk of one
    chunk: int = 0

    @property
    def kernel(self) -> str:
        """The strategy, as kernels are named by it: with what a thread holds, where it does."""
        held = self.choice.values.get("held", self.choice.values.get("steps"))
        return f"{self.strategy}_{held}" if self.strategy in HELD else self.strategy

    @property
    def widest(self) -> int:
        """Elements of the largest access: 8 where a row is held and the policy says so."""
        return self.choice.values.get("width", STEP) if self.strategy == "single_group" else STEP

    @property
    def fills_threads(self) -> bool:
        """Whether all threads that share a row hold as many steps of it as a thread can."""
        held = self.team * STEP * self.choice.values.get("steps", 0)
        return self.strategy == "single_group" and self.columns == held

    @property
    def chunks(self) -> int:
        return -(-self.columns // self.chunk) if self.chunk else 1

    @property
    def shape(self) -> dict[str, Any]:
        """Threads and group size of the launch."""
        high = 1
        if self.strategy == "single_simdgroup":
            high = min(self.choice.group_size // SIMDGROUP, self.rows)
        return {"threads": (self.team * self.chunks, self.rows), "group_size": (self.team, high)}


def team_of(columns: int, held: int) -> int:
    """Threads that share a row: whole simdgroups, no more than have something to hold."""
    return -(-columns // (SIMDGROUP * held)) * SIMDGROUP


def plan_rows(
    operator: AnyOperator,
    tensor: torch.Tensor,
    rows: int,
    columns: int,
    held: Callable[[Choice], int],
) -> Plan:
    """The first rung that fits. `held` is how many elements a thread keeps in registers."""
    choice = functools.partial(choice_for, operator, tensor)
    short = choice("single_simdgroup", "short_rows")
    if columns <= SIMDGROUP * held(short):
        return Plan("single_simdgroup", short, rows, columns, SIMDGROUP)
    medium = choice("single_group", "medium_rows")
    if columns <= medium.group_size * held(medium):
        return Plan("single_group", medium, rows, columns, team_of(columns, held(medium)))
    few = choice("two_phase", "few_long_rows")
    chunk = -(-piece_of(few, "chunk", columns, rows) // STEP) * STEP  # they start at whole vectors
    if (
        rows <= few.values["max_rows"]
        and columns > chunk
        and columns >= few.values.get("min_columns", 0)
    ):
        return Plan("two_phase", few, rows, columns, few.group_size, chunk)
    long = choice("looped", "long_rows")
    return Plan("looped", long, rows, columns, long.group_size)


def launch_reduced(operator: AnyOperator, kernel: str, rows: Rows, **numbers: float) -> None:
    """Runs the kernels of shared/reduced_rows.h: two tensors that are read, one that is written."""
    if rows.rows == 0 or rows.columns == 0:
        return
    first, second, result = rows.tensors
    plan = plan_rows(
        operator, first, rows.rows, rows.columns, lambda choice: STEP * choice.values["steps"]
    )
    width = rows.whole_width(plan.widest if first.dtype == result.dtype else STEP)
    variants.record(operator.name, first.dtype, plan.strategy, width)
    read, written = SUFFIXES[first.dtype], SUFFIXES[result.dtype]
    sizes = {
        "rows": rows.rows,
        "columns": rows.columns,
        "chunk": plan.chunk,
        "strides": rows.strides,
        **numbers,
    }

    def run(words: str, *args: Any) -> None:
        name = f"{kernel}_{words.format(form=form(width))}"
        operator.kernels.kernel(name, first.device)(*args, **plan.shape)

    if plan.strategy == "two_phase":
        states = torch.empty(rows.rows, plan.chunks, 2, device=first.device)
        run(f"two_phase_reduce_{{form}}_{read}", first, second, states, sizes)
        run(f"two_phase_write_{{form}}_{read}_{written}", *rows.tensors, sizes, states)
        return
    is_wide = width == plan.widest == 16 // first.element_size() and read == written
    if plan.fills_threads and plan.choice.values.get("whole") and is_wide:
        run(f"{plan.kernel}_whole_{{form}}_{read}_{written}", *rows.tensors, sizes)
        return
    run(f"{plan.kernel}_{{form}}_{read}_{written}", *rows.tensors, sizes)
