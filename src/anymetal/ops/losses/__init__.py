"""Losses for training."""

from anymetal.ops.losses.cross_entropy import cross_entropy
from anymetal.ops.losses.linear_cross_entropy import linear_cross_entropy

__all__ = ["cross_entropy", "linear_cross_entropy"]
