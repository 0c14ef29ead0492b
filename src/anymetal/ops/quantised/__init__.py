"""Quantised weights."""

from anymetal.ops.quantised.linear import quantized_linear
from anymetal.ops.quantised.modules import PackedLinear, QuantizedLinear, quantize_model
from anymetal.ops.quantised.packed import PackedWeight, packed_linear
from anymetal.ops.quantised.quantize import Quantized, dequantize, quantize

__all__ = [
    "PackedLinear",
    "PackedWeight",
    "Quantized",
    "QuantizedLinear",
    "dequantize",
    "packed_linear",
    "quantize",
    "quantize_model",
    "quantized_linear",
]
