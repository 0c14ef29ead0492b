"""Activations: of one tensor, with a bias, and gated products."""

from anymetal.ops.activations.biased import bias_gelu, bias_silu
from anymetal.ops.activations.gated import geglu, swiglu
from anymetal.ops.activations.plain import gelu, relu_squared, sigmoid, sigmoid_, silu

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
]
