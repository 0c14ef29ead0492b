"""The operators: torch's own names and signatures where torch has them, Metal kernels behind.

`ops.variants.last()` says which kernel ran.
"""

from __future__ import annotations

from anymetal.ops import modules, variants
from anymetal.ops.basics import axpy, axpy_, copy, copy_, fill, fill_
from anymetal.ops.biased import bias_gelu, bias_silu
from anymetal.ops.elementwise import gelu, relu_squared, sigmoid, sigmoid_, silu
from anymetal.ops.gated import geglu, swiglu
from anymetal.ops.group_norm import group_norm
from anymetal.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from anymetal.ops.rope import rope
from anymetal.ops.softmax import log_softmax, softmax

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
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
    "group_norm",
    "layer_norm",
    "log_softmax",
    "modules",
    "relu_squared",
    "rms_norm",
    "rope",
    "sigmoid",
    "sigmoid_",
    "silu",
    "softmax",
    "swiglu",
    "variants",
]
