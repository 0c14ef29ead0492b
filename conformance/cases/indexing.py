"""Embedding bags, gather, scatter with atomics, index select and transposes."""

from __future__ import annotations

from itertools import pairwise

import torch

from conformance.case import EXACT, FLOAT_SUM, Launch, case, check, normal, unwritten

FILE = "training_kernels.metal"
CORE = "core_kernels.metal"


def bags() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A table, the indices of all bags, and where each of the 5 bags starts; one is empty."""
    offsets = torch.tensor([0, 4, 4, 11, 12, 30], dtype=torch.int32)
    return normal(50, 37), torch.randint(50, (30,), dtype=torch.int32), offsets


@case(FILE, "embedding_bag_sum", FLOAT_SUM, "with weights")
def embedding_bag_sum() -> Launch:
    table, indices, offsets = bags()
    weights = normal(30)
    out = unwritten(5, 37)
    rows = table.double()[indices.long()] * weights.double()[:, None]
    expected = torch.stack([rows[a:b].sum(0) for a, b in pairwise(offsets.tolist())])
    arguments = (table, indices, offsets, weights, out, 37, 1)
    return Launch(arguments, (37, 5), (32, 1), [check("out", out, expected)])


def embedding_bag(mode: int) -> Launch:
    table, indices, offsets = bags()
    out = unwritten(5, 37)
    rows = table.double()[indices.long()]
    expected = torch.zeros(5, 37, dtype=torch.float64)
    for bag, (start, end) in enumerate(pairwise(offsets.tolist())):
        if end > start:
            part = rows[start:end]
            expected[bag] = (part.sum(0), part.mean(0), part.amax(0))[mode]
    arguments = (table, indices, offsets, out, 37, 5, mode)
    return Launch(arguments, (37, 5), (32, 2), [check("out", out, expected)])


case(FILE, "embedding_bag_simple", FLOAT_SUM, "sum")(lambda: embedding_bag(0))
case(FILE, "embedding_bag_simple", FLOAT_SUM, "mean")(lambda: embedding_bag(1))
case(FILE, "embedding_bag_simple", EXACT, "maximum")(lambda: embedding_bag(2))


@case(FILE, "gather_2d", EXACT)
def gather() -> Launch:
    source, index = normal(20, 33), torch.randint(20, (11,), dtype=torch.int32)
    out = unwritten(11, 33)
    arguments = (source, index, out, 11, 33)
    return Launch(arguments, (33, 11), (32, 4), [check("out", out, source[index.long()])])


@case(FILE, "index_select", EXACT)
def index_select() -> Launch:
    source, index = normal(20, 6, 7), torch.randint(20, (9,), dtype=torch.int32)
    out = unwritten(9, 6, 7)
    expected = source.index_select(0, index.long())
    arguments = (source, index, out, 9, 20, 42)
    return Launch(arguments, (42, 9), (16, 4), [check("out", out, expected)])


@case(FILE, "scatter_add_1d", FLOAT_SUM, "4000 atomic adds to 7 floats")
def scatter_add_contended() -> Launch:
    destination, source = normal(7), normal(4000)
    index = torch.randint(7, (4000,), dtype=torch.int32)
    expected = destination.double().index_add(0, index.long(), source.double())
    arguments = (destination, index, source, 4000)
    return Launch(arguments, (4000,), (256,), [check("sums", destination, expected)])


@case(FILE, "scatter_add_2d", FLOAT_SUM)
def scatter_add_rows() -> Launch:
    destination, source = normal(5, 40), normal(60, 40)
    index = torch.randint(5, (60,), dtype=torch.int32)
    expected = destination.double().index_add(0, index.long(), source.double())
    arguments = (destination, index, source, 60, 40)
    return Launch(arguments, (40, 60), (32, 8), [check("sums", destination, expected)])


def transpose(dtype: torch.dtype) -> Launch:
    rows, columns = 19, 45
    source = normal(rows, columns, dtype=dtype)
    out = unwritten(columns, rows, dtype=dtype)
    arguments = (source, out, rows, columns)
    return Launch(arguments, (columns, rows), (16, 16), [check("out", out, source.T)])


case(CORE, "transpose_kernel_float", EXACT)(lambda: transpose(torch.float32))
case(CORE, "transpose_kernel_half", EXACT)(lambda: transpose(torch.float16))
case(CORE, "transpose_kernel_bfloat", EXACT)(lambda: transpose(torch.bfloat16))


@case(CORE, "transpose_0213_kernel", EXACT)
def transpose_heads() -> Launch:
    source = normal(2, 3, 5, 7)
    out = unwritten(2, 5, 3, 7)
    expected = source.permute(0, 2, 1, 3)
    return Launch((source, out, 2, 3, 5, 7), (210,), (64,), [check("out", out, expected)])
