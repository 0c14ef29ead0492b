"""int8 and int4 products with groups of scales and zeros, and the quantisers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import gelu, silu

from conformance.case import (
    FLOAT_SUM,
    Check,
    Launch,
    Tolerance,
    case,
    check,
    normal,
    unwritten,
)

FILE = "quant_kernels.metal"
HALF_PRODUCT = Tolerance(3e-3, "weights and result rounded to half")


@dataclass(frozen=True)
class Quantised:
    """X, packed W, its scales and zeros, and what their product is in float64."""

    x: torch.Tensor
    weights: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    expected: torch.Tensor
    sizes: tuple[int, int, int, int]


def quantised(
    rows: int, depth: int, columns: int, group: int, dtype: torch.dtype, bits: int = 4
) -> Quantised:
    x = normal(rows, depth, dtype=dtype)
    groups = math.ceil(depth / group)
    scales = ((torch.rand(groups, columns) + 0.5) / 8).to(dtype)
    if bits == 4:
        values = torch.randint(16, (depth, columns), dtype=torch.uint8)
        weights = values[0::2] | (values[1::2] << 4)
        zeros = torch.randint(4, 12, (groups, columns)).to(dtype)
    else:
        values = weights = torch.randint(-128, 128, (depth, columns), dtype=torch.int8)
        zeros = torch.randint(-9, 9, (groups, columns)).to(dtype)
    spread = torch.arange(depth) // group
    wide = (values.double() - zeros.double()[spread]) * scales.double()[spread]
    sizes = (rows, depth, columns, group)
    return Quantised(x, weights, scales, zeros, x.double() @ wide, sizes)


def product(
    problem: Quantised,
    threads: tuple[int, ...],
    group_size: tuple[int, ...],
    expected: torch.Tensor | None = None,
    memory: int = 0,
) -> Launch:
    rows, _, columns, _ = problem.sizes
    y = unwritten(rows, columns, dtype=problem.x.dtype)
    arguments = (problem.x, problem.weights, problem.scales, problem.zeros, y, *problem.sizes)
    checks = [check("y", y, problem.expected if expected is None else expected)]
    return Launch(arguments, threads, group_size, checks, {0: memory} if memory else {})


def one_each(dtype: torch.dtype, bits: int, per_thread: int = 1) -> Launch:
    """A thread for one value, or for four neighbouring columns."""
    problem = quantised(7, 96, 52, 32, dtype, bits)
    return product(problem, (52 // per_thread, 7), (16, 4))


case(FILE, "matmul_int8_dequant", FLOAT_SUM)(lambda: one_each(torch.float32, 8))
case(FILE, "matmul_int8_dequant_half", HALF_PRODUCT)(lambda: one_each(torch.float16, 8))
case(FILE, "matmul_int4_dequant", FLOAT_SUM)(lambda: one_each(torch.float32, 4))
case(FILE, "matmul_int4_dequant_vec4", FLOAT_SUM, "uchar4 loads")(
    lambda: one_each(torch.float32, 4, per_thread=4)
)
case(FILE, "matmul_int4_dequant_half", HALF_PRODUCT)(lambda: one_each(torch.float16, 4))
case(FILE, "matmul_int4_dequant_half_vec4", HALF_PRODUCT)(
    lambda: one_each(torch.float16, 4, per_thread=4)
)


def tiled(rows: int, columns: int) -> Launch:
    """Whole threadgroups of 32 x 8, as the host launches them."""
    problem = quantised(rows, 256, columns, 128, torch.float32)
    threads = (math.ceil(columns / 32) * 32, math.ceil(rows / 8) * 8)
    return product(problem, threads, (32, 8))


case(FILE, "matmul_int4_dequant_tiled", FLOAT_SUM, "whole tiles")(lambda: tiled(16, 64))
case(
    FILE,
    "matmul_int4_dequant_tiled",
    FLOAT_SUM,
    "a partial tile",
    known_wrong="threads outside the matrix return before the barriers, and their share of the "
    "tile is never loaded",
)(lambda: tiled(11, 64))


def per_column(dtype: torch.dtype) -> Launch:
    """A threadgroup a column: four simdgroups of two rows each, summed by simd_sum."""
    problem = quantised(11, 96, 20, 32, dtype)
    return product(problem, (20 * 32, 2 * 4, 1), (32, 4, 1))


case(FILE, "matmul_int4_dequant_simd", FLOAT_SUM)(lambda: per_column(torch.float32))
case(FILE, "matmul_int4_dequant_simd_half", HALF_PRODUCT)(lambda: per_column(torch.float16))


def fast(activation: str) -> Launch:
    """32 x 64 tiles, 4 x 2 values a thread, partial tiles on both sides."""
    problem = quantised(37, 128, 80, 64, torch.float16)
    wide = problem.expected
    functions = {"": wide, "silu": silu(wide), "gelu": gelu(wide, approximate="tanh")}
    return product(problem, (2 * 32, 2 * 8), (32, 8), functions[activation])


case(FILE, "matmul_int4_fast", HALF_PRODUCT, "partial tiles")(lambda: fast(""))
case(FILE, "matmul_int4_silu_fast", HALF_PRODUCT, "partial tiles")(lambda: fast("silu"))
case(FILE, "matmul_int4_gelu_fast", HALF_PRODUCT, "partial tiles")(lambda: fast("gelu"))


def by_matrices(rows: int, columns: int) -> Launch:
    """simdgroup_matrix products, 64 x 32 tiles in 12 KiB."""
    problem = quantised(rows, 128, columns, 64, torch.float16)
    threads = (math.ceil(columns / 32) * 32, math.ceil(rows / 64) * 4)
    return product(problem, threads, (32, 4), memory=12288)


case(FILE, "matmul_int4_llama", HALF_PRODUCT, "simdgroup_matrix, partial tiles")(
    lambda: by_matrices(90, 45)
)
case(
    FILE,
    "matmul_int4_simdgroup",
    HALF_PRODUCT,
    "simdgroup_matrix, whole tiles",
    known_wrong="stores its tiles row by row (64 to a row) but loads 8x8 blocks as if each were "
    "contiguous",
)(lambda: by_matrices(64, 32))


@case(FILE, "matmul_ggml_q4_0", HALF_PRODUCT, "18-byte blocks read through a struct")
def ggml_blocks() -> Launch:
    rows, depth, columns = 70, 96, 40
    x = normal(rows, depth, dtype=torch.float16)
    scales = ((torch.rand(depth // 32, columns, 1) + 0.5) / 8).half()
    values = torch.randint(16, (depth // 32, columns, 32), dtype=torch.uint8)
    packed = values[..., 0::2] | (values[..., 1::2] << 4)
    blocks = torch.cat([scales.view(torch.uint8), packed], -1).contiguous()
    wide = (values.double() - 8) * scales.double()
    weights = wide.permute(0, 2, 1).reshape(depth, columns)
    y = unwritten(rows, columns, dtype=torch.float16)
    return Launch(
        (x, blocks, y, rows, depth, columns),
        (2 * 32, 2 * 4),
        (32, 4),
        [check("y", y, x.double() @ weights)],
        {0: 8192},
    )


@case(FILE, "matmul_int4_packed", HALF_PRODUCT, "68-byte blocks, halves at odd places")
def packed_blocks() -> Launch:
    rows, depth, columns = 13, 256, 40
    x = normal(rows, depth, dtype=torch.float16)
    scales = ((torch.rand(depth // 128, columns, 1) + 0.5) / 8).half()
    zeros = torch.randint(4, 12, scales.shape).half()
    values = torch.randint(16, (depth // 128, columns, 128), dtype=torch.uint8)
    packed = values[..., 0::2] | (values[..., 1::2] << 4)
    header = [scales.view(torch.uint8), zeros.view(torch.uint8)]
    blocks = torch.cat([*header, packed], -1).contiguous()
    wide = (values.double() - zeros.double()) * scales.double()
    weights = wide.permute(0, 2, 1).reshape(depth, columns)
    y = unwritten(rows, columns, dtype=torch.float16)
    arguments = (x, blocks, y, rows, depth, columns)
    checks = [check("y", y, x.double() @ weights)]
    return Launch(arguments, (64, 16), (32, 8), checks)


def quantiser(bits: int) -> Launch:
    """Quantise, then take (q - zero) * scale: half a step off the original at most."""
    depth, columns, group = 64, 21, 32
    groups = depth // group
    original = normal(depth, columns)
    stored = torch.zeros(depth * bits // 8, columns, dtype=torch.int8 if bits == 8 else torch.uint8)
    scales, zeros = unwritten(groups, columns), unwritten(groups, columns)

    def restored() -> torch.Tensor:
        values = stored.double()
        if bits == 4:
            pairs = torch.stack([stored & 15, stored >> 4], 1)
            values = pairs.reshape(depth, columns).double()
        spread = torch.arange(depth) // group
        return (values - zeros.double()[spread]) * scales.double()[spread]

    blocks = original.double().reshape(groups, group, columns)
    step = (blocks.amax(1) - blocks.amin(1)) / (2**bits - 1)
    arguments = (original, stored, scales, zeros, depth, columns, group)
    checks = [
        check("scales", scales, step),
        Check("restored", restored, original.double()),
    ]
    return Launch(arguments, (columns, groups), (16, 1), checks)


HALF_A_STEP = Tolerance(0.06, "half a step of 1/15 of the range, against the largest value")
case(FILE, "quantize_to_int4", HALF_A_STEP)(lambda: quantiser(4))
case(
    FILE,
    "quantize_to_int8",
    HALF_A_STEP,
    known_wrong="the zero has the wrong sign: values come back 128 steps too low",
)(lambda: quantiser(8))
