"""Kernels that make one of many: reductions, scans, softmax, sorts and searches."""

from __future__ import annotations

import math

from parity.launches.launch import (
    SPECIAL,
    Case,
    Launch,
    Value,
    ascending,
    groups_of,
    indices_below,
    launches,
    rarely,
)


@launches("init_reduce")
def _init(case: Case) -> list[Launch]:
    return [Launch({}, (13, 7), (13, 7))]


def _logical(case: Case) -> dict[str, Value]:
    """Numbers of which some rows have one that decides, and some have none."""
    operation = case.template[2].partition("<")[0]
    found = {"And": rarely(0, 3), "Or": rarely(5, 0)}
    return {"in": found[operation]} if operation in found else {}


@launches("all_reduce")
def _all(case: Case) -> list[Launch]:
    values = _logical(case) | {"in_size": 997, "row_size": 600}
    return [Launch(values, (64, 2, 1), (64, 1, 1))]


@launches("row_reduce_simple")
def _rows(case: Case) -> list[Launch]:
    values = _logical(case) | {"reduction_size": 337, "out_size": 6}
    return [Launch(values, (64, 2, 1), (64, 1, 1))]


def _dense(shape: tuple[int, ...], inner: int) -> tuple[int, ...]:
    """Strides of a dense array whose elements are `inner` numbers."""
    return tuple(inner * math.prod(shape[at + 1 :]) for at in range(len(shape)))


def _reduced(
    case: Case, rows: tuple[int, ...], outputs: int, inner: int
) -> tuple[int, dict[str, Value]]:
    """An array of outputs x rows x inner numbers, whose rows have so many dimensions.

    Kernels for five dimensions take any number above two.
    """
    dimensions = case.number(4)
    last = math.prod(rows[dimensions - 1 :])
    shape = (*rows[: dimensions - 1], last) if dimensions < 3 else rows
    count = math.prod(shape)
    return count, _logical(case) | {
        "shape": (outputs,),
        "strides": (count * inner,),
        "ndim": 1,
        "reduce_shape": shape,
        "reduce_strides": _dense(shape, inner),
        "reduce_ndim": len(shape),
    }


@launches("row_reduce_small")
def _small_rows(case: Case) -> list[Launch]:
    """Once with a thread for each output, once with a simdgroup."""
    found = []
    for rows, row, threads, group in (
        ((2, 3, 1), 7, (5, 1, 1), (5, 1, 1)),
        ((4, 5, 2), 9, (32, 5, 1), (32, 1, 1)),
    ):
        count, values = _reduced(case, rows, 5, row)
        sizes: dict[str, Value] = {"row_size": row, "non_row_reductions": count}
        found.append(Launch(values | sizes, threads, group))
    return found


@launches("row_reduce_looped")
def _looped_rows(case: Case) -> list[Launch]:
    count, values = _reduced(case, (2, 3, 1), 2, 301)
    sizes: dict[str, Value] = {"row_size": 301, "non_row_reductions": count}
    return [Launch(values | sizes, (64, 2, 1), (64, 1, 1))]


@launches("col_reduce_(small|longcolumn|looped|2pass)")
def _columns(case: Case) -> list[Launch]:
    form = case.function.removeprefix("col_reduce_")
    outputs = 1 if form == "2pass" else 3
    columns = {"small": 30, "longcolumn": 6}.get(form, 43)
    count, values = _reduced(case, (3, 5, 4), outputs, columns)
    sizes: dict[str, Value] = {
        "reduction_size": 4,
        "non_col_reductions": count // 4,
        "reduction_stride": columns,
        "column_offset": 0,
        "out_size": outputs * columns if form == "longcolumn" else outputs,
    }
    group = {"small": (8, 4, 1), "longcolumn": (6, 8, 1)}.get(form, (256, 1, 1))
    if form == "longcolumn":
        counts = (outputs, 1, 2)
    else:
        blocks = -(-columns // (32 if form == "small" else case.number(6)))
        counts = (blocks, outputs * (32 if form == "2pass" else 1), 1)
    return [Launch(values | sizes, groups_of(counts, group), group)]


@launches("contiguous_scan")
def _scan(case: Case) -> list[Launch]:
    return [Launch({"axis_size": 301}, (64, 3, 1), (64, 1, 1))]


@launches("strided_scan")
def _strided_scan(case: Case) -> list[Launch]:
    group = 32 * (32 // case.number(3))
    values: dict[str, Value] = {"axis_size": 40, "stride": 45, "stride_blocks": 2}
    return [Launch(values, (group, 4, 1), (group, 1, 1))]


@launches("softmax_single_row|logsumexp")
def _softmax(case: Case) -> list[Launch]:
    return [Launch({"axis_size": 150}, (64 * 9,), (64,))]


@launches("(softmax|logsumexp)_looped")
def _softmax_looped(case: Case) -> list[Launch]:
    """As many threads as MLX takes: the kernel reads what 32 simdgroups have left."""
    return [Launch({"axis_size": 5003}, (2048,), (1024,), elements=10006)]


@launches("cross_entropy(_vjp)?")
def _cross_entropy(case: Case) -> list[Launch]:
    values: dict[str, Value] = {"axis_size": 700, "targets": indices_below(700)}
    return [Launch(values, (4 * 128,), (128,))]


@launches("dot_product")
def _dot(case: Case) -> list[Launch]:
    group = case.number(2)
    count = 2 * group * case.number(1) - 37
    return [Launch({"n": count}, (2 * group,), (group,), elements=count)]


@launches("block_sort(_nc)?")
def _block_sort(case: Case) -> list[Launch]:
    group = case.number(3)
    count = group * case.number(4) - 5
    values: dict[str, Value] = {
        "size_sorted_axis": count,
        "in_stride_sorted_axis": 1,
        "out_stride_sorted_axis": 1,
        "in_stride_segment_axis": count,
        "out_stride_segment_axis": count,
        "nc_dim": 2,
        "nc_shape": (1, 2),
        "in_nc_strides": (0, count),
        "out_nc_strides": (0, count),
    }
    return [Launch(values, (group, 2, 1), (group, 1, 1), SPECIAL, 2 * count)]


@launches("mb_block_sort")
def _many_block_sort(case: Case) -> list[Launch]:
    group = case.number(3)
    count = 2 * group * case.number(4) - 7
    values: dict[str, Value] = {
        "size_sorted_axis": count,
        "stride_sorted_axis": 1,
        "nc_dim": 1,
        "nc_shape": (1,),
        "nc_strides": (count,),
    }
    return [Launch(values, (2 * group, 1, 1), (group, 1, 1), SPECIAL, count)]


@launches("mb_block_(partition|merge)")
def _many_block_merge(case: Case) -> list[Launch]:
    """Two tiles that become one; half of the first goes to each."""
    tile = case.number(3) * case.number(4)
    values: dict[str, Value] = {
        "size_sorted_axis": 2 * tile,
        "merge_tiles": 2,
        "num_tiles": 2,
        "n_blocks": 2,
        "dev_vals": ascending,
        "dev_vals_in": ascending,
        "dev_idxs": indices_below(tile),
        "dev_idxs_in": indices_below(tile),
    }
    if case.function == "mb_block_partition":
        return [Launch(values, (4, 1, 1), (4, 1, 1), elements=2 * tile)]
    values["block_partitions"] = (0, tile // 2, tile)
    group = case.number(3)
    return [Launch(values, (2 * group, 1, 1), (group, 1, 1), elements=2 * tile)]


@launches("searchsorted")
def _search(case: Case) -> list[Launch]:
    values: dict[str, Value] = {"n": 1000, "a_stride": 1, "a": ascending}
    threads = (13, 7, 2)
    return [Launch(values, threads, threads, SPECIAL)]
