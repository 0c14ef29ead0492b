"""Launches over elements: rows of neighbouring elements go in, each thread takes one or several."""

from __future__ import annotations

import torch

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import variants
from anymetal.ops.declare.layout import Rows, group_shape
from anymetal.ops.declare.operator import AnyOperator
from anymetal.policy.policy import Choice, choose

TWICE = 16  # elements of two accesses


def launch_map(
    operator: AnyOperator,
    kernel: str,
    rows: Rows,
    *,
    kinds: str | None = None,
    **numbers: float,
) -> None:
    """Runs a kernel over elements: `rows.tensors` are its first buffers, a struct is the last.

    The struct has `columns`, `strides` and `numbers`. The kernel's name ends in the dtype of the
    tensors, or in `kinds` where they differ.
    """
    if rows.rows == 0 or rows.columns == 0:
        return
    first = rows.tensors[0]
    choice = choice_for(operator, first, "elementwise")
    width = rows.width(choice.values.get("width", 4))
    variants.record(operator.name, first.dtype, "elementwise", width)
    threads = (-(-rows.columns // width), rows.rows)
    if width == TWICE:  # 32 threads take 64 accesses
        threads = (-(-threads[0] // SIMDGROUP) * SIMDGROUP, rows.rows)
    name = f"{kernel}_{form(width)}_{kinds or operator.suffix(first)}"
    operator.kernels.kernel(name, first.device)(
        *rows.tensors,
        {"columns": rows.columns, "strides": rows.strides, **numbers},
        threads=threads,
        group_size=group_shape(threads, choice.group_size),
    )


def form(width: int) -> str:
    """The part of a kernel's name that says how many elements it takes at once."""
    return "scalar" if width == 1 else f"vec{width}"


def choice_for(
    operator: AnyOperator, tensor: torch.Tensor, strategy: str, shape_class: str = "any"
) -> Choice:
    """The policy's answer for a launch of an operator over a tensor's rows or elements."""
    return choose(
        operator=operator.name,
        dtype=variants.DTYPE_NAMES[tensor.dtype],
        shape_class=shape_class,
        device=tensor.device.type,
        strategy=strategy,
    )
