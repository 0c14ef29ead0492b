"""Weights from files of other libraries, dequantised bit for bit as those libraries do."""

from anymetal.weights.ggml import FORMATS, dequantize_ggml
from anymetal.weights.gguf import Loaded, load_gguf

__all__ = ["FORMATS", "Loaded", "dequantize_ggml", "load_gguf"]
