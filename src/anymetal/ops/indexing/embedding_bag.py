"""embedding_bag: the sum, the mean or the largest elements of bags of rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import Call, Case, Cost, Gradients, operator, variants
from anymetal.ops.declare.checks import check_like, check_shape
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.indexing.embedding import (
    check_table,
    over_frequencies,
    padding_of,
    refuse,
)
from anymetal.ops.indexing.indexing import index_select, scatter_add
from anymetal.ops.indexing.places import check_index, rows_of
from anymetal.ops.indexing.table_gradient import NO_PADDING, table_gradient
from anymetal.ops.losses.targets import words_of

SOURCE = "embedding.metal"
MODES = ("sum", "mean", "max")
Tensor = torch.Tensor
Optional = torch.Tensor | None
_COLUMNS = 128  # of a simdgroup, as embedding.metal has it


def _reference(
    input: Tensor,
    weight: Tensor,
    offsets: Optional,
    per_sample_weights: Optional,
    mode: str,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
    padding: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """torch's function; what the kernel keeps for the gradient has no elements to compare."""
    output = F.embedding_bag(
        input.long(),
        weight,
        None if offsets is None else offsets.long(),
        scale_grad_by_freq=scale_grad_by_freq,
        mode=mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=None if padding == NO_PADDING else padding,
    )
    largest, sizes = _by_torch(input, weight, offsets, mode, include_last_offset, padding)
    return output, largest, sizes


def _by_torch(
    input: Tensor, weight: Tensor, offsets: Optional, mode: str, last: bool, padding: int
) -> tuple[Tensor, Tensor]:
    """Which row has the largest element of a bag, and how many rows a bag has."""
    flat, bag = input.reshape(-1).long(), bag_of(input, offsets)
    bags = _bags(input, offsets, last)
    kept = (flat != padding) & (bag < bags)
    sizes = weight.new_zeros(bags, dtype=torch.int32)
    sizes.index_add_(0, bag[kept], kept[kept].int())
    if mode != "max":
        return weight.new_empty(0, weight.shape[1], dtype=torch.int32), sizes
    largest = weight.new_full((bags, weight.shape[1]), -1, dtype=torch.int32)
    for i in range(bags):
        rows = flat[kept & (bag == i)]
        if len(rows):
            largest[i] = rows[weight.detach()[rows].argmax(0)].int()
    return largest, sizes


def bag_of(input: Tensor, offsets: Optional) -> Tensor:
    """The bag of each index; those behind the last bag are in one that is not there."""
    places = torch.arange(input.numel(), device=input.device)
    if offsets is None:
        return places // max(input.shape[1], 1)
    starts = offsets.long()
    return torch.searchsorted(starts, places, right=True) - 1


def _bags(input: Tensor, offsets: Optional, has_last: bool) -> int:
    return input.shape[0] if offsets is None else offsets.numel() - int(has_last)


def _case(
    indices: Sequence[int],
    rows: int,
    columns: int,
    offsets: Sequence[int] | None,
    mode: str,
    *,
    weights: bool = False,
    scale: bool = False,
    last: bool = False,
    padding: int = NO_PADDING,
) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype).to(device)

        index = torch.randint(0, rows, tuple(indices), generator=generator)
        starts = None if offsets is None else torch.tensor(list(offsets), dtype=torch.long)
        args: list[Any] = [index.to(device), random(rows, columns)]
        args += [None if starts is None else starts.to(device)]
        args += [random(*indices) if weights else None, mode, scale, last, padding]
        return args, {}

    words = f"{'x'.join(map(str, indices))} {rows}x{columns} {mode}"
    return Case(f"{words}{' weights' if weights else ''}{' last' if last else ''}", make)


@operator(
    source=SOURCE,
    reference=_reference,
    cases=[
        _case((0,), 5, 4, (), "sum"),
        _case((31,), 7, 33, (0, 3, 3, 20), "sum", weights=True),
        _case((9, 7), 11, 150, None, "sum", weights=True),
        _case((4, 5), 9, 5, None, "max", padding=2),
        _case((20,), 7, 3, (0, 4, 9, 20), "mean", last=True, padding=1),
    ],
    bench=[_case((256, 16), 10000, 128, None, "mean")],
    results=["output", "largest", "sizes"],
    detached=["largest", "sizes"],
    cost=lambda input, weight, *_, **__: Cost(
        read=input.nbytes + input.numel() * weight[0].nbytes,
        write=input.shape[0] * weight[0].nbytes,
    ),
    gradient_in_part=True,  # where no index names a place
)
def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    per_sample_weights: Tensor | None,
    mode: str,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
    padding: int,
) -> tuple[Tensor, Tensor, Tensor]:
    name = "embedding_bag"
    check_table(name, weight)
    check_index(name, "input", input, weight)
    if input.dim() != (2 if offsets is None else 1):
        raise ValueError(
            f"{name}: argument 'input' expects one dimension with 'offsets' and two without, got"
            f" shape {list(input.shape)}"
        )
    if offsets is not None:
        check_index(name, "offsets", offsets, weight)
    if per_sample_weights is not None:
        check_like(name, "per_sample_weights", per_sample_weights, "weight", weight)
        check_shape(name, "per_sample_weights", per_sample_weights, input.shape, "that of 'input'")
    bags = _bags(input, offsets, include_last_offset)
    columns, places = weight.shape[1], bags if mode == "max" else 0
    return (
        weight.new_empty(bags, columns),
        weight.new_empty(places, columns, dtype=torch.int32),
        weight.new_empty(bags, dtype=torch.int32),
    )


@_embedding_bag.run
def _(
    results: tuple[Tensor, Tensor, Tensor],
    input: Tensor,
    weight: Tensor,
    offsets: Optional,
    per_sample_weights: Optional,
    mode: str,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
    padding: int,
) -> None:
    output, largest, sizes = results
    if output.numel() == 0 or input.numel() == 0:
        for result, nothing in ((output, 0), (largest, -1), (sizes, 0)):
            result.fill_(nothing)
        return
    dense = weight.contiguous()
    rows = rows_of(_embedding_bag, weight, input)
    numbers = {
        "bags": output.shape[0],
        "columns": output.shape[1],
        "places": weight.shape[0],
        "indices": input.numel(),
        "mode": MODES.index(mode),
        "offset_is_wide": offsets is not None and offsets.dtype == torch.int64,
        "length": 0 if offsets is not None else input.shape[1],
        "has_last": include_last_offset,
        "has_weights": per_sample_weights is not None,
        "padding": padding,
    }
    threads = (SIMDGROUP, output.shape[0], -(-output.shape[1] // _COLUMNS))
    size = choice_for(_embedding_bag, weight, "elementwise").group_size
    variants.record("embedding_bag", weight.dtype, "elementwise", 1)
    _embedding_bag.kernel("embedding_bag", weight)(
        dense,
        rows,
        rows if offsets is None else words_of(offsets),
        dense if per_sample_weights is None else per_sample_weights.contiguous(),
        output,
        largest if mode == "max" else sizes,
        sizes,
        numbers,
        threads=threads,
        group_size=(SIMDGROUP, min(size // SIMDGROUP, output.shape[0]), 1),
    )


@_embedding_bag.backward(
    keep=["input", "weight", "offsets", "per_sample_weights", "largest", "sizes"]
)
def _(call: Call, grad: Tensor, *_: Tensor) -> Gradients:
    shape = call.like("weight").shape
    if call.mode == "max":
        kept = grad.masked_fill(call.largest < 0, 0)
        at = call.largest.clamp_min(0)
        return {"weight": scatter_add(grad.new_zeros(shape), 0, at, kept)}
    flat, bag = call.input.reshape(-1), bag_of(call.input, call.offsets)
    # Indices before the first bag and behind the last are in none.
    inside = bag.clamp(0, max(len(grad) - 1, 0))
    weights = call.per_sample_weights
    found: dict[str, Tensor] = {}
    if call.needs("per_sample_weights"):
        left_out = (bag != inside) | (flat == call.padding)
        rows = index_select(grad, 0, inside).masked_fill(left_out[:, None], 0)
        dots = (rows.float() * index_select(call.weight, 0, flat).float()).sum(1)
        found["per_sample_weights"] = dots.to(grad.dtype).view(call.input.shape)
    if call.needs("weight"):
        scales = None if weights is None else weights.reshape(-1).float()
        if call.mode == "mean":
            scales = 1 / call.sizes[inside].clamp_min(1).float()
        if call.scale_grad_by_freq:
            by_frequency = over_frequencies(flat, shape[0])
            scales = by_frequency if scales is None else scales * by_frequency
        found["weight"] = table_gradient(
            grad, flat, shape[0], bag.int(), scales, padding=call.padding
        )
    return found


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Bags of rows of `weight`, as F.embedding_bag; `max_norm` and `sparse` are refused."""
    name = "embedding_bag"
    refuse(name, max_norm, sparse)
    if mode not in MODES:
        known = ", ".join(repr(each) for each in MODES)
        raise ValueError(f"{name}: argument 'mode' expects {known}, got {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"{name}: per_sample_weights was not None. per_sample_weights is only supported for"
            f" mode='sum' (got mode={mode!r})"
        )
    if offsets is None and include_last_offset:
        raise ValueError(f"{name}: argument 'include_last_offset' needs 'offsets'")
    padding = padding_of(name, padding_idx, weight.shape[0])
    return _embedding_bag(
        input, weight, offsets, per_sample_weights, mode, scale_grad_by_freq, include_last_offset,
        padding,
    )[0]  # fmt: skip
