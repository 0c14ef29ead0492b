"""RMSNorm and LayerNorm with their fused forms, one threadgroup a row."""

from __future__ import annotations

import torch
from torch.nn.functional import layer_norm, rms_norm

from conformance.case import (
    BFLOAT,
    FLOAT_SUM,
    HALF,
    Check,
    Launch,
    Tolerance,
    case,
    check,
    normal,
    unwritten,
)

FILE = "training_kernels.metal"
EPSILON = 1e-5


def rows_launch(
    arguments: tuple[object, ...], rows: int, group: int, checks: list[Check]
) -> Launch:
    return Launch(arguments, (rows * group, 1), (group, 1), checks)


def rmsnorm(dtype: torch.dtype, columns: int, group: int, count: int) -> Launch:
    """`count` is what the kernel wants to know of the row: its length, or that over four."""
    rows = 9
    x, weight = normal(rows, columns, dtype=dtype), normal(columns, dtype=dtype)
    y, scale = unwritten(rows, columns, dtype=dtype), unwritten(rows)
    wide = x.double()
    expected = rms_norm(wide, (columns,), weight.double(), EPSILON)
    expected_scale = torch.rsqrt(wide.pow(2).mean(-1) + EPSILON)
    arguments = (x, weight, y, scale, count, EPSILON)
    return rows_launch(
        arguments, rows, group, [check("y", y, expected), check("rstd", scale, expected_scale)]
    )


case(FILE, "rmsnorm_fwd", FLOAT_SUM, "301 columns, 128 threads")(
    lambda: rmsnorm(torch.float32, 301, 128, 301)
)
case(FILE, "rmsnorm_fwd", FLOAT_SUM, "50 columns, 50 threads: a partial simdgroup")(
    lambda: rmsnorm(torch.float32, 50, 50, 50)
)
case(FILE, "rmsnorm_fwd_vec4", FLOAT_SUM)(lambda: rmsnorm(torch.float32, 512, 256, 512))
case(FILE, "rmsnorm_fwd_half", HALF)(lambda: rmsnorm(torch.float16, 301, 128, 301))
case(FILE, "rmsnorm_fwd_half_vec", HALF)(lambda: rmsnorm(torch.float16, 520, 64, 130))
case(FILE, "rmsnorm_fwd_bfloat", BFLOAT)(lambda: rmsnorm(torch.bfloat16, 301, 128, 301))


@case(FILE, "fused_add_rmsnorm", FLOAT_SUM, "writes the sum and the norm in place")
def fused_add_rmsnorm() -> Launch:
    rows, columns, group = 6, 333, 96
    x, residual, weight = normal(rows, columns), normal(rows, columns), normal(columns)
    scale = unwritten(rows)
    total = x.double() + residual.double()
    expected = rms_norm(total, (columns,), weight.double(), EPSILON)
    return rows_launch(
        (x, residual, weight, scale, columns, EPSILON),
        rows,
        group,
        [check("y", x, expected), check("residual", residual, total)],
    )


def rmsnorm_gradients(
    rows: int, columns: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Upstream, x, rstd, weight, and torch's own gradients of x and weight."""
    upstream, x, weight = normal(rows, columns), normal(rows, columns), normal(columns)
    scale = torch.rsqrt(x.double().pow(2).mean(-1) + EPSILON).float()
    wide_x, wide_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    y = rms_norm(wide_x, (columns,), wide_weight, EPSILON)
    dx, dw = torch.autograd.grad(y, (wide_x, wide_weight), upstream.double())
    return upstream, x, scale, weight, dx, dw


def rmsnorm_backward_dx(columns: int) -> Launch:
    rows, group = 7, 64
    upstream, x, scale, weight, expected, _ = rmsnorm_gradients(rows, columns)
    dx = unwritten(rows, columns)
    return rows_launch(
        (upstream, x, scale, weight, dx, columns), rows, group, [check("dx", dx, expected)]
    )


case(FILE, "rmsnorm_bwd_dx", FLOAT_SUM)(lambda: rmsnorm_backward_dx(301))
case(FILE, "rmsnorm_bwd_dx_vec4", FLOAT_SUM)(lambda: rmsnorm_backward_dx(320))


@case(FILE, "rmsnorm_bwd_dw", FLOAT_SUM)
def rmsnorm_backward_dw() -> Launch:
    rows, columns = 40, 301
    upstream, x, scale, _, _, expected = rmsnorm_gradients(rows, columns)
    dw = unwritten(columns)
    arguments = (upstream, x, scale, dw, columns, rows)
    return Launch(arguments, (columns,), (64,), [check("dw", dw, expected)])


def layernorm(dtype: torch.dtype, columns: int, offset: float = 0.0) -> Launch:
    rows, group = 5, 128
    x = (torch.randn(rows, columns) + offset).to(dtype)
    weight, bias = normal(columns, dtype=dtype), normal(columns, dtype=dtype)
    y, mean, scale = unwritten(rows, columns, dtype=dtype), unwritten(rows), unwritten(rows)
    wide = x.double()
    expected = layer_norm(wide, (columns,), weight.double(), bias.double(), EPSILON)
    return rows_launch(
        (x, weight, bias, y, mean, scale, columns, EPSILON),
        rows,
        group,
        [check("y", y, expected), check("mean", mean, wide.mean(-1))],
    )


LARGE_MEAN = Tolerance(1e-3, "the mean itself is rounded to a quarter of a thousandth")
MEAN = Tolerance(2e-5, "a mean near zero, relative to the largest of five")
case(FILE, "layernorm_fwd", MEAN, "float4 body and a tail of 2")(
    lambda: layernorm(torch.float32, 322)
)
case(FILE, "layernorm_fwd_half", HALF, "half4 body and a tail of 3")(
    lambda: layernorm(torch.float16, 323)
)
case(FILE, "layernorm_fwd_bfloat", BFLOAT)(lambda: layernorm(torch.bfloat16, 323))
case(
    FILE,
    "layernorm_fwd",
    LARGE_MEAN,
    "values around 3000",
    known_wrong="variance as E[x^2] - E[x]^2 in float: cancels when the mean is large",
)(lambda: layernorm(torch.float32, 320, offset=3000.0))


def fused_add_layernorm(dtype: torch.dtype) -> Launch:
    rows, columns, group = 5, 200, 96
    x, residual = normal(rows, columns, dtype=dtype), normal(rows, columns, dtype=dtype)
    weight, bias = normal(columns, dtype=dtype), normal(columns, dtype=dtype)
    y, mean, scale = unwritten(rows, columns, dtype=dtype), unwritten(rows), unwritten(rows)
    total = x.double() + residual.double()
    expected = layer_norm(total, (columns,), weight.double(), bias.double(), EPSILON)
    arguments = (x, residual, weight, bias, y, mean, scale, columns, EPSILON)
    return rows_launch(arguments, rows, group, [check("y", y, expected)])


case(FILE, "fused_add_layernorm", FLOAT_SUM)(lambda: fused_add_layernorm(torch.float32))
case(FILE, "fused_add_layernorm_half", HALF)(lambda: fused_add_layernorm(torch.float16))
