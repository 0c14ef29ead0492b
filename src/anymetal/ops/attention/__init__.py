"""Attention."""

from anymetal.ops.attention.attention import scaled_dot_product_attention

__all__ = ["scaled_dot_product_attention"]
