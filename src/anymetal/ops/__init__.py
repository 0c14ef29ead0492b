"""The operators: torch's own names and signatures where torch has them, Metal kernels behind.

`ops.variants.last()` says which kernel ran.
"""

from __future__ import annotations

from anymetal.ops import modules, variants
from anymetal.ops.attention import scaled_dot_product_attention
from anymetal.ops.basics import axpy, axpy_, copy, copy_, fill, fill_
from anymetal.ops.biased import bias_gelu, bias_silu
from anymetal.ops.elementwise import gelu, relu_squared, sigmoid, sigmoid_, silu
from anymetal.ops.gated import geglu, swiglu
from anymetal.ops.group_norm import group_norm
from anymetal.ops.matmul import addmm, linear, matmul
from anymetal.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from anymetal.ops.paged_attention import paged_attention
from anymetal.ops.paged_blocks import copy_blocks, reshape_and_cache, swap_blocks
from anymetal.ops.paged_cache import PagedCache
from anymetal.ops.quant import Quantized, dequantize, quantize
from anymetal.ops.quant_linear import quantized_linear
from anymetal.ops.quant_modules import QuantizedLinear, quantize_model
from anymetal.ops.rope import rope
from anymetal.ops.softmax import log_softmax, softmax

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
