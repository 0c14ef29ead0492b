"""Quantised weights."""

from anymetal.ops.quantised.linear import quantized_linear
from anymetal.ops.quantised.modules import QuantizedLinear, quantize_model
from anymetal.ops.quantised.quantize import Quantized, dequantize, quantize

__all__ = [
    "Quantized",
    "QuantizedLinear",
    "dequantize",
    "quantize",
    "quantize_model",
    "quantized_linear",
]
