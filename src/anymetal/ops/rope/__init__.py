"""Rotary embeddings."""

from anymetal.ops.rope.rope import rope

__all__ = ["rope"]
