"""The operators: torch's own names and signatures where torch has them, Metal kernels behind.

`ops.variants.last()` says which kernel ran.
"""

from __future__ import annotations

from anymetal.ops import variants
from anymetal.ops.basics import axpy, axpy_, copy, copy_, fill, fill_
from anymetal.ops.biased import bias_gelu, bias_silu
from anymetal.ops.elementwise import gelu, relu_squared, sigmoid, sigmoid_, silu
from anymetal.ops.gated import geglu, swiglu
from anymetal.ops.softmax import log_softmax, softmax

__all__ = [
    "axpy",
    "axpy_",
    "bias_gelu",
    "bias_silu",
    "copy",
    "copy_",
    "fill",
    "fill_",
    "geglu",
    "gelu",
    "log_softmax",
    "relu_squared",
    "sigmoid",
    "sigmoid_",
    "silu",
    "softmax",
    "swiglu",
    "variants",
]
