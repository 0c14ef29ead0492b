"""Products with quantised matrices (affine, fp4, fp8), and quantising itself."""

from __future__ import annotations

import torch

from anymetal.nouns import Scalar
from parity.launches.launch import (
    SPECIAL,
    Case,
    Fill,
    Launch,
    Undefined,
    Value,
    groups_of,
    launches,
)


def _scales(case: Case) -> dict[str, Value]:
    """Scales of small floats are bytes: exponents near 1, or numbers of 8 bits near 1."""
    if case.function.startswith("affine"):
        return {}
    middle = 127 if case.number(1) == 32 else 0x38
    near: Fill = lambda generator, count: (  # noqa: E731
        torch.randint(middle - 6, middle + 7, (count,), generator=generator)
    )
    return {"scales": near, "global_scale": (0.75,)}


def _layout(case: Case, m: int, n: int, k: int, *, transposed: bool) -> dict[str, Value]:
    """Sizes under all their names, and two batches of everything."""
    group, bits = case.numbers(1, 2)
    words, scales = n * k * bits // 32, n * k // group
    return {
        **dict.fromkeys(("K", "in_vec_size"), k),
        **dict.fromkeys(("N", "out_vec_size"), n),
        "M": m,
        "x_batch_ndims": 1,
        "x_shape": (2, m, k),
        "x_strides": (m * k, k, 1),
        "w_batch_ndims": 1,
        "w_shape": (2, n, k) if transposed else (2, k, n),
        "w_strides": (words,),
        "s_strides": (scales,),
        "b_strides": (scales,),
        "batch_ndims": 1,
        "batch_shape": (2,),
        "lhs_strides": (1,),
        "rhs_strides": (1,),
        "lhs_indices": (1, 0),
        "rhs_indices": (0, 1),
        **_scales(case),
    }


def _launch(
    case: Case,
    values: dict[str, Value],
    counts: tuple[int, int, int],
    group: tuple[int, int, int],
    constants: dict[str, Scalar] | None = None,
) -> Launch:
    sizes = [values[name] for name in ("M", "N", "K")]
    m, n, k = (size for size in sizes if isinstance(size, int))
    # Weights are words of 32 bits, all others elements: the larger number is enough for each.
    elements = 3 * max(m * k, n * k // 4, m * n, n * k * case.number(2) // 32)
    threads = groups_of(counts, group)
    return Launch(values, threads, group, elements=elements, constants=constants or {})


@launches("(affine|fp)_(gather_)?qmv(_fast)?")
def _vector(case: Case) -> list[Launch]:
    """A fast kernel takes 512 numbers at a time, and rows by eight, but for partial rows."""
    is_fast = case.function.endswith("fast")
    is_partial = len(case.template) > 4 and case.flag(4)
    n, k = (13 if is_partial or not is_fast else 16), (1024 if is_fast else 640)
    values = _layout(case, 2, n, k, transposed=True)
    return [_launch(case, values, (2, 2, 2), (32, 2, 1))]


@launches("(affine|fp)_qmv_quad")
def _quad(case: Case) -> list[Launch]:
    if case.number(2) in (3, 5, 6):
        raise Undefined("it reads outside of its own array; MLX has it for 1, 2, 4 and 8 bits")
    values = _layout(case, 2, 67, case.number(3), transposed=True)
    return [_launch(case, values, (2, 2, 2), (32, 1, 1))]


@launches("(affine|fp)_qmv_wide")
def _wide(case: Case) -> list[Launch]:
    vectors, lanes = case.numbers(3, 2)
    values = _layout(case, vectors + 1, 13, 1280, transposed=True)
    rows = 2 * (32 // lanes)
    return [_launch(case, values, (2, -(-13 // rows), 2), (32, 2, 1))]


@launches("(affine|fp)_(gather_)?qvm")
def _columns(case: Case) -> list[Launch]:
    values = _layout(case, 2, 128, 70, transposed=False)
    return [_launch(case, values, (2, 2, 2), (32, 2, 1))]


@launches("(affine|fp)_qvm_split_k")
def _columns_in_parts(case: Case) -> list[Launch]:
    """As many parts of K as the kernel is made for; the last of them is smaller."""
    group, bits, parts = case.numbers(1, 3)
    n, each = 128, 6
    values = _layout(case, 1, n, parts * each, transposed=False) | {
        "in_vec_size": each,
        "final_block_size": each - 2,
        "x_shape": (parts, 1),
        "x_strides": (each,),
        "w_shape": (parts,),
        "w_strides": (each * n * bits // 32,),
        "s_strides": (each * n // group,),
        "b_strides": (each * n // group,),
        "M": parts,
    }
    return [_launch(case, values, (1, 2, parts), (32, 2, 1))]


@launches("(affine|fp)_(gather_)?qmm_t")
def _matrix(case: Case) -> list[Launch]:
    values = _layout(case, 37, 64 if case.flag(3) else 50, 128, transposed=True)
    return [_launch(case, values, (2, 2, 2), (32, 2, 2))]


@launches("(affine|fp)_(gather_)?qmm_n")
def _matrix_of_columns(case: Case) -> list[Launch]:
    values = _layout(case, 37, 128, 70, transposed=False)
    return [_launch(case, values, (4, 2, 2), (32, 2, 2))]


@launches("(affine|fp)_qmm_t_splitk")
def _matrix_in_parts(case: Case) -> list[Launch]:
    n = 64 if case.flag(3) else 50
    values = _layout(case, 37, n, 256, transposed=True)
    values |= {"k_partition_size": 128, "split_k_partition_stride": 37 * n}
    return [_launch(case, values, (2, 2, 2), (32, 2, 2))]


@launches("(affine|fp)_gather_qmm_rhs")
def _matrix_of_groups(case: Case) -> list[Launch]:
    """Rows in three groups, one of them empty, each with a matrix of its own."""
    rows, columns, _, simds_m, simds_n = case.numbers(3, 5)
    is_transposed = case.flag(8)
    aligned = case.chance("align N")
    n, k = (4 * columns if aligned else 4 * columns - 6, 128) if is_transposed else (128, 70)
    values = _layout(case, 2 * rows + 5, n, k, transposed=is_transposed)
    values |= {"num_groups": 3, "offsets": (0, rows + 3, rows + 3)}
    constants: dict[str, Scalar] = {"align_N": n % columns == 0, "align_K": k % 32 == 0}
    counts = (-(-n // columns), 5, 1)
    launch = _launch(case, values, counts, (32, simds_n, simds_m), constants)
    return [launch]


@launches("affine_(de)?quantize")
def _affine(case: Case) -> list[Launch]:
    """Groups of 32 lanes that take whole groups; numbers behind them are left alone."""
    return [Launch({}, (64, 2), (64, 2), SPECIAL if case.chance("special") else "sparse")]


@launches("fp_(quantize|dequantize|quantize_dequantize)")
def _floats(case: Case) -> list[Launch]:
    values = _scales(case) if case.function == "fp_dequantize" else {"global_scale": (0.75,)}
    return [Launch(values, (64, 2), (64, 2), SPECIAL if case.chance("special") else "sparse")]
