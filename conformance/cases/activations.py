"""GELU, SiLU and SwiGLU, forward and backward, in float, half and bfloat."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import gelu, silu

from conformance.case import (
    BFLOAT,
    FLOAT,
    HALF,
    Launch,
    Tolerance,
    case,
    check,
    normal,
    unwritten,
)

FILE = "activation_kernels.metal"
TRAINING = "training_kernels.metal"
HALF_THROUGHOUT = Tolerance(8e-3, "every step is rounded to half: some ten units of the result")

Function = Callable[[torch.Tensor], torch.Tensor]
Row = tuple[str, Function, torch.dtype, Tolerance]


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return gelu(x, approximate="tanh")


def gradient(function: Function, x: torch.Tensor, upstream: torch.Tensor) -> torch.Tensor:
    """d(function(x))/dx * upstream, in float64."""
    leaf = x.double().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, upstream.double())[0]


def elementwise(function: Function, dtype: torch.dtype, count: int, with_count: bool) -> Launch:
    """Four values a thread where the kernel takes the count, one where it does not."""
    x = normal(count, dtype=dtype) * 2
    y = unwritten(count, dtype=dtype)
    threads = math.ceil(count / 4) if with_count else count
    arguments = (x, y, count) if with_count else (x, y)
    return Launch(arguments, (threads,), (64,), [check("y", y, function(x.double()))])


FORWARD: list[Row] = [
    ("gelu_fwd", tanh_gelu, torch.float32, FLOAT),
    ("silu_fwd", silu, torch.float32, FLOAT),
    ("gelu_fwd_half", tanh_gelu, torch.float16, HALF_THROUGHOUT),
    ("silu_fwd_half", silu, torch.float16, HALF_THROUGHOUT),
    ("gelu_fwd_bfloat", tanh_gelu, torch.bfloat16, BFLOAT),
    ("silu_fwd_bfloat", silu, torch.bfloat16, BFLOAT),
]
SCALAR: list[Row] = [
    ("gelu_fwd_scalar", tanh_gelu, torch.float32, FLOAT),
    ("silu_fwd_scalar_half", silu, torch.float16, HALF_THROUGHOUT),
    ("silu_fwd_bfloat_scalar", silu, torch.bfloat16, BFLOAT),
]
BACKWARD: list[Row] = [
    ("gelu_bwd", tanh_gelu, torch.float32, FLOAT),
    ("silu_bwd", silu, torch.float32, FLOAT),
    ("gelu_bwd_half", tanh_gelu, torch.float16, HALF_THROUGHOUT),
    ("silu_bwd_half", silu, torch.float16, HALF_THROUGHOUT),
    ("gelu_bwd_bfloat", tanh_gelu, torch.bfloat16, BFLOAT),
    ("silu_bwd_bfloat", silu, torch.bfloat16, BFLOAT),
]


def backward(function: Function, dtype: torch.dtype) -> Launch:
    count = 4096
    x, upstream = normal(count, dtype=dtype), normal(count, dtype=dtype)
    dx = unwritten(count, dtype=dtype)
    return Launch(
        (upstream, x, dx, count),
        (count // 4,),
        (64,),
        [check("dx", dx, gradient(function, x, upstream))],
    )


for _name, _function, _dtype, _tolerance in FORWARD:
    case(FILE, _name, _tolerance)(partial(elementwise, _function, _dtype, 4096, True))
for _name, _function, _dtype, _tolerance in SCALAR:
    case(FILE, _name, _tolerance, "1001 values, the last threadgroup is partial")(
        partial(elementwise, _function, _dtype, 1001, False)
    )
for _name, _function, _dtype, _tolerance in BACKWARD:
    case(FILE, _name, _tolerance)(partial(backward, _function, _dtype))


@case(
    FILE,
    "gelu_bwd",
    FLOAT,
    "1003 values",
    known_wrong="no tail: counts values / 4 rounded down, and the host has no scalar kernel for it",
)
def gelu_backward_tail() -> Launch:
    count = 1003
    x, upstream = normal(1004)[:count], normal(1004)[:count]
    dx = unwritten(1004)[:count]
    expected = gradient(tanh_gelu, x, upstream)
    return Launch((upstream, x, dx, count), (251,), (64,), [check("dx", dx, expected)])


@case(FILE, "bias_gelu_fwd", FLOAT, "bias of 64 over 32 rows")
def bias_gelu() -> Launch:
    rows, columns = 32, 64
    x, bias = normal(rows, columns), normal(columns)
    y = unwritten(rows, columns)
    expected = tanh_gelu(x.double() + bias.double())
    arguments = (x, bias, y, x.numel(), columns // 4)
    return Launch(arguments, (x.numel() // 4,), (128,), [check("y", y, expected)])


@case(FILE, "bias_silu_fwd_half", HALF_THROUGHOUT, "bias of 64 over 32 rows")
def bias_silu_half() -> Launch:
    rows, columns = 32, 64
    x, bias = normal(rows, columns, dtype=torch.float16), normal(columns, dtype=torch.float16)
    y = unwritten(rows, columns, dtype=torch.float16)
    expected = silu(x.double() + bias.double())
    arguments = (x, bias, y, x.numel(), columns // 4)
    return Launch(arguments, (x.numel() // 4,), (128,), [check("y", y, expected)])


def swiglu(dtype: torch.dtype, per_thread: int) -> Launch:
    count = 3000
    gate, up = normal(count, dtype=dtype), normal(count, dtype=dtype)
    out = unwritten(count, dtype=dtype)
    expected = silu(gate.double()) * up.double()
    threads = (math.ceil(count / per_thread),)
    return Launch((gate, up, out, count), threads, (256,), [check("out", out, expected)])


case(TRAINING, "swiglu_fwd", FLOAT)(lambda: swiglu(torch.float32, 1))
case(TRAINING, "swiglu_fwd_vec4", FLOAT)(lambda: swiglu(torch.float32, 4))
case(TRAINING, "swiglu_fwd_half", HALF)(lambda: swiglu(torch.float16, 1))
case(TRAINING, "swiglu_fwd_half_vec4", HALF)(lambda: swiglu(torch.float16, 4))
case(TRAINING, "swiglu_fwd_bfloat", BFLOAT)(lambda: swiglu(torch.bfloat16, 1))


@case(TRAINING, "swiglu_bwd_strided_float", FLOAT, "transposed gate, uint2 shapes and strides")
def swiglu_backward_strided() -> Launch:
    rows, columns = 37, 50
    upstream, up = normal(rows, columns), normal(rows, columns)
    stored = normal(columns, rows)
    gate = stored.T
    d_gate, d_up = unwritten(rows, columns), unwritten(rows, columns)
    dense = torch.tensor([columns, 1], dtype=torch.int32)
    transposed = torch.tensor([1, rows], dtype=torch.int32)
    shape = torch.tensor([rows, columns], dtype=torch.int32)
    expected_gate = gradient(lambda g: silu(g) * up.double(), gate, upstream)
    return Launch(
        (upstream, stored, up, d_gate, d_up, shape, dense, transposed, dense, dense, dense),
        (columns, rows),
        (16, 16),
        [
            check("d_gate", d_gate, expected_gate),
            check("d_up", d_up, upstream.double() * silu(gate.double())),
        ],
    )
