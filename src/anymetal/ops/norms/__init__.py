"""Norms over the last dimensions, over groups of channels, and fused with a residual."""

from anymetal.ops.norms.group_norm import group_norm, group_norm_silu
from anymetal.ops.norms.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "group_norm",
    "group_norm_silu",
    "layer_norm",
    "rms_norm",
]
