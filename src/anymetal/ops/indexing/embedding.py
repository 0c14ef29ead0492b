"""embedding: rows of a table by their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare import Call, Case, Cost, Gradients, operator
from anymetal.ops.declare.checks import check_input
from anymetal.ops.indexing.indexing import index_add, index_select
from anymetal.ops.indexing.places import check_index, take_into
from anymetal.ops.indexing.table_gradient import NO_PADDING, table_gradient

SOURCE = "indexing.metal"
Tensor = torch.Tensor


def padding_of(name: str, padding_idx: int | None, rows: int) -> int:
    """The row that is left out, counted from the first; NO_PADDING for none."""
    if padding_idx is None:
        return NO_PADDING
    if not -rows <= padding_idx < rows:
        raise ValueError(
            f"{name}: Padding_idx must be within num_embeddings: argument 'padding_idx' expects"
            f" {-rows} to {rows - 1}, got {padding_idx}"
        )
    return padding_idx % rows


def refuse(name: str, max_norm: float | None, sparse: bool) -> None:
    """What torch's function has and ours has not."""
    if max_norm is not None:
        raise NotImplementedError(
            f"{name}: argument 'max_norm' expects None, got {max_norm}. Scale the table with"
            " torch.embedding_renorm_ before the call"
        )
    if sparse:
        raise NotImplementedError(f"{name}: argument 'sparse' expects False: gradients are dense")


def check_table(name: str, weight: Tensor) -> None:
    check_input(name, weight, "weight")
    if weight.dim() != 2:
        raise ValueError(
            f"{name}: argument 'weight' expects shape [rows, columns], got {list(weight.shape)}"
        )


def over_frequencies(index: Tensor, rows: int) -> Tensor:
    """One over how often each index is met."""
    ones = torch.ones(index.shape, device=index.device)
    counts = index_add(torch.zeros(rows, device=index.device), 0, index, ones)
    return 1 / index_select(counts, 0, index)


def _case(indices: Sequence[int], rows: int, columns: int, **named: Any) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        index = torch.randint(0, rows, tuple(indices), generator=generator)
        table = torch.randn(rows, columns, generator=generator)
        return [index.to(device), table.to(dtype).to(device)], dict(named)

    words = ["x".join(map(str, indices)), f"{rows}x{columns}"]
    return Case(" ".join([*words, *(f"{n}={v}" for n, v in named.items())]), make)


def _reference(
    input: Tensor, weight: Tensor, padding: int = NO_PADDING, scale_grad_by_freq: bool = False
) -> Tensor:
    row = None if padding == NO_PADDING else padding
    return F.embedding(input.long(), weight, row, scale_grad_by_freq=scale_grad_by_freq)


@operator(
    source=SOURCE,
    reference=_reference,
    cases=[
        _case((0,), 5, 4),
        _case((31,), 7, 33),
        _case((2, 9), 5, 3, padding=2, scale_grad_by_freq=True),
    ],
    bench=[_case((4096,), 32000, 512)],
    cost=lambda input, weight, *_, **__: Cost(
        read=input.nbytes + input.numel() * weight[0].nbytes,
        write=input.numel() * weight[0].nbytes,
    ),
    gradient_in_part=True,  # where no index names a place
)
def _embedding(
    input: Tensor, weight: Tensor, padding: int = NO_PADDING, scale_grad_by_freq: bool = False
) -> Tensor:
    check_table("embedding", weight)
    check_index("embedding", "input", input, weight)
    return weight.new_empty([*input.shape, weight.shape[1]])


@_embedding.run
def _(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    padding: int = NO_PADDING,
    scale_grad_by_freq: bool = False,
) -> None:
    rows = output.view(input.numel(), weight.shape[1])
    take_into(_embedding, rows, weight, 0, input, each=False)


@_embedding.backward(keep=["input"])
def _(call: Call, grad: Tensor) -> Gradients:
    rows, columns = call.like("weight").shape
    flat = call.input.reshape(-1)
    scales = over_frequencies(flat, rows) if call.scale_grad_by_freq else None
    given = grad.reshape(len(flat), columns)
    found = table_gradient(given, flat, rows, scales=scales, padding=call.padding)
    return {"weight": found}


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` at indices, as F.embedding; `max_norm` and `sparse` are refused."""
    refuse("embedding", max_norm, sparse)
    padding = padding_of("embedding", padding_idx, weight.shape[0])
    return _embedding(input, weight, padding, scale_grad_by_freq)
