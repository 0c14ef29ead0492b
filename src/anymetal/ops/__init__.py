"""The operators: torch's own names and signatures where torch has them, Metal kernels behind.

`ops.variants.last()` says which kernel ran.
"""

from __future__ import annotations

from anymetal.ops import variants
from anymetal.ops.biased import bias_gelu, bias_silu
from anymetal.ops.elementwise import gelu, relu_squared, sigmoid, sigmoid_, silu
from anymetal.ops.gated import geglu, swiglu

__all__ = [
    "bias_gelu",
    "bias_silu",
    "geglu",
    "gelu",
    "relu_squared",
    "sigmoid",
    "sigmoid_",
    "silu",
    "swiglu",
    "variants",
]
