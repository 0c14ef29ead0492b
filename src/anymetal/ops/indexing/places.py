"""Tensors and indices go in; they are taken from or added to as [outer, places, inner]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import AnyOperator, variants
from anymetal.ops.declare.checks import check_dtype
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.declare.kernel_file import SUFFIXES, kernel_file
from anymetal.ops.losses.targets import INDICES, words_of

KERNELS = kernel_file("indexing/indexing.metal")
Tensor = torch.Tensor
By = Literal["sorting", "atomics"] | None
_BITS = {4: (torch.int32, "int"), 2: (torch.int16, "short")}
# Rows of so many elements are walked by the lanes of a simdgroup.
_LONG = 16
_COLUMNS = 128  # of a simdgroup that adds sorted rows, as indexing.metal has it


@dataclass(frozen=True)
class Shape:
    """A shape around one of its dimensions."""

    outer: int
    places: int
    inner: int

    @staticmethod
    def around(tensor: Tensor, dim: int) -> Shape:
        shape = tensor.shape
        if not shape:
            return Shape(1, 1, 1)
        return Shape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


def dimension(name: str, tensor: Tensor, dim: int) -> int:
    """The dimension counted from the first."""
    dimensions = max(tensor.dim(), 1)
    if not -dimensions <= dim < dimensions:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-dimensions},"
            f" {dimensions - 1}], but got {dim})"
        )
    return dim % dimensions


def check_index(name: str, argument: str, index: Tensor, beside: Tensor) -> None:
    """Indices of 32 or 64 bits on the device of what they name."""
    check_dtype(name, argument, index, INDICES)
    if index.device != beside.device:
        raise ValueError(
            f"{name}: argument '{argument}' is on {index.device}, but the tensor it names places of"
            f" is on {beside.device}. Move it with .to({str(beside.device)!r})"
        )


def take_into(
    operator: AnyOperator, output: Tensor, input: Tensor, dim: int, index: Tensor, *, each: bool
) -> None:
    """output[o, j, i] = input[o, index, i], with an index for each j, or for each element."""
    if output.numel() == 0:
        return
    shape, taken = Shape.around(input, dim), Shape.around(output, dim)
    bits, suffix = _BITS[input.element_size()]
    rows = taken.inner >= _LONG and not each
    deep = taken.inner >= _LONG
    sizes = {
        "count": taken.places,
        "places": shape.places,
        "inner": taken.inner,
        "is_wide": index.dtype == torch.int64,
        "is_each": each,
        "is_deep": deep,
    }
    threads = (SIMDGROUP, taken.places, taken.outer) if rows else _threads(taken, deep)
    variants.record(operator.name, input.dtype, "elementwise", 1)
    KERNELS.kernel(f"take_rows_{suffix}" if rows else f"take_{suffix}", input.device)(
        input.contiguous().view(-1).view(bits),
        words_of(index),
        output.view(-1).view(bits),
        sizes,
        threads=threads,
        group_size=_group(operator, input, threads),
        error_buf_idx=4,
    )


def add_into(
    operator: AnyOperator,
    output: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    each: bool,
    alpha: float = 1.0,
    by: By = None,
) -> None:
    """output[o, index, i] += alpha * source[o, j, i], an index for each j or for each element.

    Long rows are sorted by their place and added in order, in float32. So are others where torch
    asks for deterministic algorithms, and short rows of half precision, which atomics would need a
    copy in float32 of. Otherwise atomics add, which were faster on the CPU engine. `by` asks for
    one of them.
    """
    if source.numel() == 0:
        return
    shape, added = Shape.around(output, dim), Shape.around(source, dim)
    to = _destinations(operator, output, index, shape, added, each)
    if added.inner >= _LONG and not each:
        add_rows(operator, output, to, source, shape, added, alpha=alpha, by=by)
        return
    if each:
        shape, added = Shape(1, output.numel(), 1), Shape(1, source.numel(), 1)
    deep = added.inner > 1
    sizes = {
        "count": added.places,
        "places": shape.places,
        "inner": added.inner,
        "is_deep": deep,
        "alpha": alpha,
    }
    threads = _threads(added, deep)
    launch = {"threads": threads, "group_size": _group(operator, output, threads)}
    dense, suffix = source.contiguous(), SUFFIXES[output.dtype]
    if _sorts(by, short=deep and output.dtype != torch.float32):
        variants.record(operator.name, output.dtype, "sorted", 1)
        ordered, order = to.sort(stable=True)
        KERNELS.kernel(f"add_sorted_{suffix}", output.device)(
            output, dense, ordered, order.int(), sizes, **launch
        )
        return
    variants.record(operator.name, output.dtype, "atomic", 1)
    sums = output if output.dtype == torch.float32 else output.float()
    KERNELS.kernel(f"add_atomic_{suffix}", output.device)(sums, dense, to, sizes, **launch)
    if sums is not output:
        output.copy_(sums)


def _sorts(by: By, *, short: bool) -> bool:
    """Whether what goes to one place is sorted: asked for, or faster than atomics."""
    if by is not None:
        return by == "sorting"
    return short or torch.are_deterministic_algorithms_enabled()


def add_rows(
    operator: AnyOperator,
    output: Tensor,
    to: Tensor,
    source: Tensor,
    shape: Shape,
    added: Shape,
    *,
    rows: Tensor | None = None,
    scales: Tensor | None = None,
    alpha: float = 1.0,
    fresh: bool = False,
    by: By = None,
) -> None:
    """output[o, to[j]] += alpha * scales[j] * source[o, rows[j]], a simdgroup a row.

    Without `rows`, j is the row of `source`. Nothing is added where `to` is below 0. `fresh` output
    is 0, and need not be read.
    """
    blocks = -(-added.inner // _COLUMNS)
    sizes = {
        "count": to.numel(),
        "rows": added.places,
        "places": shape.places,
        "inner": added.inner,
        "blocks": blocks,
        "has_rows": rows is not None,
        "has_scales": scales is not None,
        "is_fresh": fresh,
        "alpha": alpha,
    }
    sorts = _sorts(by, short=True)
    threads = (SIMDGROUP, to.numel(), added.outer * (blocks if sorts else 1))
    launch = {"threads": threads, "group_size": _group(operator, output, threads)}
    dense, suffix = source.contiguous(), SUFFIXES[output.dtype]
    given = (to if rows is None else rows, to.view(torch.float32) if scales is None else scales)
    if sorts:
        variants.record(operator.name, output.dtype, "sorted", 1)
        ordered, order = to.sort(stable=True)
        KERNELS.kernel(f"add_rows_sorted_{suffix}", output.device)(
            output, dense, ordered, order.int(), *given, sizes, **launch
        )
        return
    variants.record(operator.name, output.dtype, "atomic", 1)
    sums = output if output.dtype == torch.float32 else output.float()
    KERNELS.kernel(f"add_rows_atomic_{suffix}", output.device)(
        sums, dense, to, *given, sizes, **launch
    )
    if sums is not output:
        output.copy_(sums)


def rows_of(operator: AnyOperator, table: Tensor, index: Tensor) -> Tensor:
    """Indices of a table's rows as 32 bits; -1 for those outside, which are reported."""
    shape, count = Shape(1, table.shape[0], 1), Shape(1, index.numel(), 1)
    return _destinations(operator, table, index, shape, count, each=True)


def _destinations(
    operator: AnyOperator, output: Tensor, index: Tensor, shape: Shape, added: Shape, each: bool
) -> Tensor:
    walked = added if each else Shape(1, added.places, 1)
    count = walked.outer * walked.places * walked.inner
    to = torch.empty(count, dtype=torch.int32, device=index.device)
    sizes: dict[str, Any] = {
        "count": walked.places,
        "places": shape.places,
        "inner": walked.inner,
        "is_wide": index.dtype == torch.int64,
        "is_each": True,
        "is_deep": False,
    }
    threads = _threads(walked, False)
    KERNELS.kernel("destinations", index.device)(
        words_of(index),
        to,
        sizes,
        threads=threads,
        group_size=_group(operator, output, threads),
        error_buf_idx=3,
    )
    return to


def _threads(shape: Shape, deep: bool) -> tuple[int, int, int]:
    if deep:
        return shape.inner, shape.places, shape.outer
    return shape.places * shape.inner, 1, shape.outer


def _group(
    operator: AnyOperator, tensor: Tensor, threads: tuple[int, int, int]
) -> tuple[int, int, int]:
    size = choice_for(operator, tensor, "elementwise").group_size
    wide = min(size, 1 << max(threads[0] - 1, 0).bit_length())
    high = min(size // wide, 1 << max(threads[1] - 1, 0).bit_length())
    deep = min(size // (wide * high), threads[2])
    return wide, high, deep
