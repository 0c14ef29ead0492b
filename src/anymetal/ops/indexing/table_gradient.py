"""table_gradient: the gradient of a table of which rows were taken, as embeddings take them."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.ops.declare import Call, Case, Cost, Gradients, operator
from anymetal.ops.declare.checks import MAX_ELEMENTS, check_dtype, check_input, check_shape
from anymetal.ops.indexing.indexing import index_add, index_select
from anymetal.ops.indexing.places import Shape, add_rows, check_index, rows_of

Tensor = torch.Tensor
Optional = torch.Tensor | None
NO_PADDING = -1


def _reference(
    grad: Tensor,
    index: Tensor,
    rows: int,
    bags: Optional = None,
    scales: Optional = None,
    padding: int = NO_PADDING,
) -> Tensor:
    # As kernels: added up in float32 at least, rounded once.
    wide = grad if grad.dtype == torch.float64 else grad.float()
    taken = wide[_bags(grad, index, bags).clamp(0, max(len(grad) - 1, 0))]
    if scales is not None:
        taken = taken * scales[:, None]
    kept = _is_kept(grad, index, bags, padding)
    taken = torch.where(kept[:, None], taken, torch.zeros_like(taken))
    zeros = torch.zeros(rows, grad.shape[1], dtype=taken.dtype, device=grad.device)
    return zeros.index_add(0, index.long(), taken).to(grad.dtype)


def _bags(grad: Tensor, index: Tensor, bags: Optional) -> Tensor:
    return torch.arange(len(index), device=grad.device) if bags is None else bags.long()


def _is_kept(grad: Tensor, index: Tensor, bags: Optional, padding: int) -> Tensor:
    """Whether an index is of a bag that is there, and not the row that is left out."""
    kept = index != padding
    return kept if bags is None else kept & (bags >= 0) & (bags < len(grad))


def _case(count: int, rows: int, columns: int, bags: int = 0, padding: int = NO_PADDING) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        index = torch.randint(0, rows, (count,), generator=generator)
        grad = torch.randn(bags or count, columns, generator=generator)
        args: list[Any] = [grad.to(dtype).to(device), index.to(device), rows]
        if bags:
            of = torch.randint(-1, bags + 1, (count,), generator=generator).int()
            scales = torch.randn(count, generator=generator)
            args += [of.to(device), scales.to(device)]
        return args, {} if padding == NO_PADDING else {"padding": padding}

    words = f"{count} of {rows}x{columns}"
    return Case(f"{words} {bags} bags" if bags else words, make)


def _cost(grad: Tensor, index: Tensor, rows: int, *_: Any, **__: Any) -> Cost:
    row = grad.shape[1] * grad.element_size()
    return Cost(read=index.nbytes + index.numel() * row, write=min(rows, index.numel()) * row)


@operator(
    source="indexing.metal",
    reference=_reference,
    cases=[
        _case(0, 5, 4),
        _case(31, 7, 33),
        _case(40, 9, 3, bags=5, padding=2),
        _case(257, 11, 130, bags=31),
    ],
    bench=[_case(4096, 32000, 512), _case(16384, 10000, 128, bags=512)],
    cost=_cost,
    in_part=True,  # where no index names a row
)
def table_gradient(
    grad: Tensor,
    index: Tensor,
    rows: int,
    bags: Tensor | None = None,
    scales: Tensor | None = None,
    padding: int = NO_PADDING,
) -> Tensor:
    """Zeros of `rows` rows, with scales[i] * grad[bags[i]] added at the row index[i] for each i.

    Without `bags`, i is the row of `grad`. Indices of bags that are not there, and those equal to
    `padding`, are left out. Rows are sorted and added in their order, in float32: two runs give one
    result.
    """
    name = "table_gradient"
    check_input(name, grad, "grad")
    check_index(name, "index", index, grad)
    if grad.dim() != 2 or index.dim() != 1:
        raise ValueError(
            f"{name}: arguments 'grad' and 'index' expect two dimensions and one, got"
            f" {list(grad.shape)} and {list(index.shape)}"
        )
    if bags is None:
        check_shape(name, "grad", grad, [len(index), grad.shape[1]], "a row for each index")
    else:
        check_index(name, "bags", bags, grad)
        check_shape(name, "bags", bags, index.shape, "that of 'index'")
    if scales is not None:
        check_dtype(name, "scales", scales, [torch.float32])
        check_shape(name, "scales", scales, index.shape, "that of 'index'")
    if not 0 <= rows <= MAX_ELEMENTS:
        raise ValueError(f"{name}: argument 'rows' expects 0 to {MAX_ELEMENTS}, got {rows}")
    return grad.new_zeros(rows, grad.shape[1])


@table_gradient.run
def _(
    output: Tensor,
    grad: Tensor,
    index: Tensor,
    rows: int,
    bags: Optional = None,
    scales: Optional = None,
    padding: int = NO_PADDING,
) -> None:
    if output.numel() == 0 or index.numel() == 0:
        return
    to = rows_of(table_gradient, output, index)
    if bags is not None or padding != NO_PADDING:
        to = to.masked_fill(~_is_kept(grad, index, bags, padding), -1)
    add_rows(
        table_gradient,
        output,
        to,
        grad,
        Shape(1, rows, output.shape[1]),
        Shape(1, len(grad), output.shape[1]),
        rows=None if bags is None else bags.int().contiguous(),
        scales=None if scales is None else scales.contiguous(),
        fresh=True,
    )


@table_gradient.backward(keep=["grad", "index", "bags", "scales"])
def _(call: Call, beside: Tensor) -> Gradients:
    grad, index = call.grad, call.index
    kept = _is_kept(grad, index, call.bags, call.padding)[:, None]
    at = _bags(grad, index, call.bags).clamp(0, max(len(grad) - 1, 0))
    taken = index_select(beside, 0, index).masked_fill(~kept, 0)
    found: dict[str, Tensor] = {}
    if call.needs("grad"):
        scaled = taken if call.scales is None else (taken.float() * call.scales[:, None])
        found["grad"] = index_add(torch.zeros_like(grad), 0, at, scaled.to(grad.dtype))
    if call.needs("scales"):
        found["scales"] = (index_select(grad, 0, at).float() * taken.float()).sum(1)
    return found
