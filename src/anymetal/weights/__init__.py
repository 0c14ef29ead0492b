"""Weights from files of other libraries, dequantised bit for bit as those libraries do."""

from anymetal.weights.filling import Loaded
from anymetal.weights.ggml import FORMATS, dequantize_ggml
from anymetal.weights.gguf import load_gguf
from anymetal.weights.layers import load_awq, load_gptq, load_mlx, load_nf4
from anymetal.weights.packed import (
    dequantize_awq,
    dequantize_gptq,
    dequantize_mlx,
    dequantize_nf4,
)

__all__ = [
    "FORMATS",
    "Loaded",
    "dequantize_awq",
    "dequantize_ggml",
    "dequantize_gptq",
    "dequantize_mlx",
    "dequantize_nf4",
    "load_awq",
    "load_gguf",
    "load_gptq",
    "load_mlx",
    "load_nf4",
]
