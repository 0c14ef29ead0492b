"""The operators: torch's own names and signatures where torch has them, Metal kernels behind.

`ops.variants.last()` says which kernel ran.
"""

from __future__ import annotations

from anymetal.ops import modules
from anymetal.ops.activations.biased import bias_gelu, bias_silu
from anymetal.ops.activations.gated import geglu, swiglu
from anymetal.ops.activations.plain import gelu, relu_squared, sigmoid, sigmoid_, silu
from anymetal.ops.attention.attention import scaled_dot_product_attention
from anymetal.ops.basics.basics import axpy, axpy_, copy, copy_, fill, fill_
from anymetal.ops.declare import variants
from anymetal.ops.matmul.matmul import addmm, linear, matmul
from anymetal.ops.norms.group_norm import group_norm
from anymetal.ops.norms.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from anymetal.ops.paged.attention import paged_attention
from anymetal.ops.paged.blocks import copy_blocks, reshape_and_cache, swap_blocks
from anymetal.ops.paged.cache import PagedCache
from anymetal.ops.quantised.linear import quantized_linear
from anymetal.ops.quantised.modules import QuantizedLinear, quantize_model
from anymetal.ops.quantised.quantize import Quantized, dequantize, quantize
from anymetal.ops.rope.rope import rope
from anymetal.ops.softmax.softmax import log_softmax, softmax

__all__ = [
    "PagedCache",
    "Quantized",
    "QuantizedLinear",
    "add_layer_norm",
    "add_rms_norm",
    "addmm",
    "axpy",
    "axpy_",
    "bias_gelu",
    "bias_silu",
    "copy",
    "copy_",
    "copy_blocks",
    "dequantize",
    "fill",
    "fill_",
    "geglu",
    "gelu",
    "group_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "modules",
    "paged_attention",
    "quantize",
    "quantize_model",
    "quantized_linear",
    "relu_squared",
    "reshape_and_cache",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "sigmoid",
    "sigmoid_",
    "silu",
    "softmax",
    "swap_blocks",
    "swiglu",
    "variants",
]
