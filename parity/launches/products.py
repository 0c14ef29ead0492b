"""Products of matrices and vectors: gemv and steel's gemm in all their forms."""

from __future__ import annotations

from collections.abc import Mapping

from anymetal.nouns import Scalar
from parity.launches.launch import (
    Case,
    Launch,
    Plain,
    Value,
    groups_of,
    half_zero,
    indices_below,
    launches,
)

# Masks of blocks, and how far it is from one block to the next.
_MASKS: dict[str, Value] = {
    **dict.fromkeys(("out_mask", "mat_mask", "vec_mask", "lhs_mask", "rhs_mask"), half_zero),
    "mask_strides": (1, 7, 1, 7, 7, 1),
    "mask_batch_strides": (3, 5, 7, 3, 5, 7),
}


def _batches(vector: int, matrix: int) -> dict[str, Value]:
    """Two batches, by one stride or by two dimensions; indices choose the other way round."""
    return {
        "batch_ndim": 2,
        "batch_shape": (1, 2),
        "vector_batch_stride": (vector, vector),
        "matrix_batch_stride": (matrix, matrix),
        "bias_batch_stride": (3, 3),
        "index_batch_strides": (1, 1, 1, 1),
        "vector_batch_ndim": 1,
        "vector_batch_shape": (2,),
        "matrix_batch_ndim": 1,
        "matrix_batch_shape": (2,),
        "vec_indices": (1, 0),
        "mat_indices": (0, 1),
    }


@launches("gemv(_t)?(_gather|_masked)?")
def _gemv(case: Case) -> list[Launch]:
    first = 3 if case.function.endswith("masked") else 1
    rows, columns, lanes_m, lanes_n, each_m, each_n = case.numbers(first, 6)
    block_m, block_n = rows * lanes_m * each_m, columns * lanes_n * each_n
    # gemv_t walks down the columns: its matrix is K x N.
    is_transposed = "_t" in case.function
    depth, outputs = (block_m, block_n) if is_transposed else (block_n, block_m)
    inputs, results = depth + 37, outputs + max(5, each_m, each_n)
    stride = results if is_transposed else inputs
    values: dict[str, Value] = {
        "in_vec_size": inputs,
        "out_vec_size": results,
        "marix_ld": stride,  # MLX's spelling
        "alpha": 0.5,
        "beta": 1.5,
        "bias_stride": 1,
        **_batches(inputs, inputs * results),
        **_MASKS,
    }
    group = (32, columns, rows)
    threads = groups_of((2, 1, 2), group)
    return [Launch(values, threads, group, elements=2 * inputs * results)]


@launches("gemv_wide(_gather)?")
def _gemv_wide(case: Case) -> list[Launch]:
    vectors, lanes = case.numbers(1, 2)
    depth, rows, count = 4 * 8 * lanes + 44, 6, vectors + 1
    values: dict[str, Value] = {
        "in_vec_size": depth,
        "out_vec_size": rows,
        "M": count,
        "matrix_ld": depth,
        "vector_ld": depth,
        "alpha": 0.5,
        "beta": 1.5,
        "bias_ld": rows,
        "bias_fd": 1,
        **_batches(depth * count, depth * rows),
    }
    constants: dict[str, Scalar] = {
        "gemv_wide_has_batch": case.chance("batch"),
        "gemv_wide_do_axpby": case.chance("axpby"),
    }
    group = (32, lanes // 8, 1)
    threads = groups_of((1, 2, 2), group)
    return [Launch(values, threads, group, elements=2 * depth * rows, constants=constants)]


def _sizes(tiles: list[int], aligned: Mapping[str, bool]) -> tuple[int, int, int]:
    """A product of two tiles each way, with edges where nothing says that there are none."""
    rows, columns, depth = tiles
    return (
        2 * rows - (0 if aligned["M"] else 5),
        2 * columns - (0 if aligned["N"] else 3),
        2 * depth + (0 if aligned["K"] else 7),
    )


def _parameters(m: int, n: int, k: int, tiles: list[int], sides: list[bool]) -> dict[str, Plain]:
    """GEMMParams, with two batches."""
    left, right = sides
    return {
        "M": m,
        "N": n,
        "K": k,
        "lda": m if left else k,
        "ldb": k if right else n,
        "ldc": n,
        "ldd": n,
        "tiles_n": -(-n // tiles[1]),
        "tiles_m": -(-m // tiles[0]),
        "batch_stride_a": m * k,
        "batch_stride_b": n * k,
        "batch_stride_d": m * n,
        "swizzle_log": 0,
        "gemm_k_iterations_aligned": k // tiles[2],
        "batch_ndim": 1,
    }


def _by_chance(case: Case) -> dict[str, bool]:
    return {side: case.chance(f"align {side}") for side in "MNK"}


def _constants(case: Case, aligned: Mapping[str, bool]) -> dict[str, Scalar]:
    others = ("has_batch", "use_out_source", "do_axpby", "segments_contiguous")
    named: dict[str, Scalar] = {f"align_{side}": value for side, value in aligned.items()}
    return named | {name: case.chance(name) for name in others}


@launches("gemm")
def _gemm(case: Case) -> list[Launch]:
    tiles, aligned = case.numbers(1, 3), _by_chance(case)
    m, n, k = _sizes(tiles, aligned)
    group = (32, case.number(5), case.number(4))
    values: dict[str, Value] = {
        "params": _parameters(m, n, k, tiles, [case.flag(6), case.flag(7)]),
        "addmm_params": {"ldc": n, "fdc": 1, "batch_stride_c": m * n, "alpha": 0.5, "beta": 2.0},
        "batch_shape": (2,),
        "batch_strides": (m * k, n * k, m * n),
    }
    constants = _constants(case, aligned)
    elements = 2 * max(m * k, n * k, m * n)
    threads = groups_of((2, 2, 2), group)
    return [Launch(values, threads, group, elements=elements, constants=constants)]


@launches("gemm_splitk")
def _gemm_splitk(case: Case) -> list[Launch]:
    tiles = case.numbers(2, 3)
    aligned = {"M": case.flag(9), "N": case.flag(9), "K": case.flag(10)}
    m, n, k = _sizes(tiles, aligned)
    group = (32, case.number(6), case.number(5))
    parameters = _parameters(m, n, k, tiles, [case.flag(7), case.flag(8)])
    parameters |= {
        "split_k_partitions": 2,
        "split_k_partition_stride": m * n,
        "split_k_partition_size": tiles[2],
        "gemm_k_iterations_aligned": 1,
    }
    elements = 2 * max(m * k, n * k, m * n)
    threads = groups_of((2, 2, 2), group)
    return [Launch({"params": parameters}, threads, group, elements=elements)]


@launches("block_masked_gemm")
def _gemm_masked(case: Case) -> list[Launch]:
    tiles = case.numbers(3, 3)
    aligned = {"M": case.flag(10), "N": case.flag(10), "K": case.flag(11)}
    m, n, k = _sizes(tiles, aligned)
    group = (32, case.number(7), case.number(6))
    values: dict[str, Value] = {
        "params": _parameters(m, n, k, tiles, [case.flag(8), case.flag(9)]),
        "batch_shape": (1,),
        "batch_strides": (m * k, n * k, 1, 2, 3),
        **_MASKS,
    }
    elements = 2 * max(m * k, n * k, m * n)
    return [Launch(values, groups_of((2, 2, 1), group), group, elements=elements)]


@launches("segmented_mm")
def _gemm_segmented(case: Case) -> list[Launch]:
    tiles, aligned = case.numbers(1, 3), _by_chance(case)
    m, n, k = _sizes(tiles, {**aligned, "K": False})
    group = (32, case.number(5), case.number(4))
    values: dict[str, Value] = {
        "params": _parameters(m, n, k, tiles, [case.flag(6), case.flag(7)]),
        "segments": (0, tiles[2] + 3, tiles[2] + 3, k),
    }
    constants = _constants(case, aligned)
    elements = 2 * max(m * k, n * k, m * n)
    threads = groups_of((2, 2, 2), group)
    return [Launch(values, threads, group, elements=elements, constants=constants)]


@launches("gather_mm")
def _gemm_gather(case: Case) -> list[Launch]:
    tiles, aligned = case.numbers(1, 3), _by_chance(case)
    m, n, k = _sizes(tiles, aligned)
    group = (32, case.number(5), case.number(4))
    parameters = _parameters(m, n, k, tiles, [case.flag(6), case.flag(7)])
    values: dict[str, Value] = {
        "params": parameters | {"batch_stride_a": 1, "batch_stride_b": 1},
        "lhs_indices": indices_below(2),
        "rhs_indices": indices_below(2),
        "indices_shape": (2,),
        "lhs_strides": (1,),
        "rhs_strides": (1,),
        **dict.fromkeys(("batch_ndim_a", "batch_ndim_b"), 1),
        **dict.fromkeys(("batch_shape_a", "batch_shape_b"), (2,)),
        "batch_strides_a": (m * k,),
        "batch_strides_b": (n * k,),
    }
    constants = _constants(case, aligned)
    elements = 2 * max(m * k, n * k, m * n)
    threads = groups_of((2, 2, 2), group)
    return [Launch(values, threads, group, elements=elements, constants=constants)]


@launches("gather_mm_rhs")
def _gemm_gather_rows(case: Case) -> list[Launch]:
    """Rows in three groups, one of them empty, each with a matrix of its own."""
    tiles, aligned = case.numbers(1, 3), _by_chance(case)
    m, n, k = _sizes(tiles, {**aligned, "M": False})
    group = (32, case.number(5), case.number(4))
    values: dict[str, Value] = {
        "params": _parameters(m, n, k, tiles, [case.flag(6), case.flag(7)]),
        "offsets": (0, tiles[0] - 3, tiles[0] - 3),
        "num_groups": 3,
    }
    constants = _constants(case, aligned)
    elements = 3 * max(m * k, n * k, m * n)
    threads = groups_of((2, 4, 1), group)
    return [Launch(values, threads, group, elements=elements, constants=constants)]


@launches("gemm_splitk_accum(_axpby)?")
def _splitk_sum(case: Case) -> list[Launch]:
    values: dict[str, Value] = {
        "k_partitions": 3,
        "partition_stride": 13 * 7,
        "ldd": 13,
        "ldc": 13,
        "fdc": 1,
        "alpha": 0.5,
        "beta": 2.0,
    }
    return [Launch(values, (13, 7, 1), (13, 7, 1))]
