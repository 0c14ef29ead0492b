"""Softmax forward and backward."""

from __future__ import annotations

import torch

from conformance.case import (
    BFLOAT,
    FLOAT,
    FLOAT_SUM,
    HALF,
    Launch,
    case,
    check,
    normal,
    unwritten,
)

FILE = "training_kernels.metal"
CORE = "core_kernels.metal"
TOO_MUCH_MEMORY = "32768"


def rows_of(dtype: torch.dtype, columns: int, *extra: int) -> Launch:
    rows, group = 6, 96
    x = normal(rows, columns, dtype=dtype) * 3
    y = unwritten(rows, columns, dtype=dtype)
    expected = torch.softmax(x.double(), -1)
    arguments = (x, y, columns, rows, *extra)
    return Launch(arguments, (rows * group, 1), (group, 1), [check("y", y, expected)])


case(FILE, "fused_softmax_vec4", FLOAT_SUM)(lambda: rows_of(torch.float32, 400))
# A row of 8192 floats and 32 more for the reduction are 32896 bytes; a threadgroup has 32768.
case(FILE, "fused_softmax", FLOAT_SUM, "needs 32896 bytes", refused=TOO_MUCH_MEMORY)(
    lambda: rows_of(torch.float32, 300, 1)
)
case(FILE, "fused_softmax_half", HALF, "needs 32896 bytes", refused=TOO_MUCH_MEMORY)(
    lambda: rows_of(torch.float16, 300)
)
case(FILE, "fused_softmax_bfloat", BFLOAT, "needs 32896 bytes", refused=TOO_MUCH_MEMORY)(
    lambda: rows_of(torch.bfloat16, 300)
)


@case(CORE, "softmax_batched_kernel", FLOAT_SUM, "in place, a tree in [[threadgroup(0)]]")
def softmax_batched() -> Launch:
    rows, columns, group, temperature = 5, 200, 64, 0.7
    x = normal(rows, columns)
    expected = torch.softmax(x.double() / temperature, -1)
    return Launch(
        (x, columns, rows, temperature),
        (rows * group,),
        (group,),
        [check("x", x, expected)],
        {0: group * 4},
    )


def softmax_backward(dtype: torch.dtype) -> Launch:
    rows, columns, group = 4, 1003, 256
    probabilities = torch.softmax(torch.randn(rows, columns), -1).to(dtype)
    upstream = normal(rows, columns, dtype=dtype)
    dx = unwritten(rows, columns, dtype=dtype)
    p, dp = probabilities.double(), upstream.double()
    expected = p * (dp - (p * dp).sum(-1, keepdim=True))
    return Launch(
        (probabilities, upstream, dx, rows, columns),
        (rows * group,),
        (group,),
        [check("dx", dx, expected)],
        {0: 8 * 4},
    )


case(FILE, "softmax_bwd", FLOAT, "1003 columns: a body of eights and a tail of 3")(
    lambda: softmax_backward(torch.float32)
)
case(FILE, "softmax_bwd_half", HALF, "1003 columns: rows start at odd halves")(
    lambda: softmax_backward(torch.float16)
)
case(FILE, "softmax_bwd_bfloat", BFLOAT, "1003 columns")(lambda: softmax_backward(torch.bfloat16))
