"""Losses for training."""

from anymetal.ops.losses.cross_entropy import cross_entropy
from anymetal.ops.losses.kl_div import kl_div
from anymetal.ops.losses.kl_div_topk import kl_div_topk
from anymetal.ops.losses.linear_cross_entropy import linear_cross_entropy

__all__ = ["cross_entropy", "kl_div", "kl_div_topk", "linear_cross_entropy"]
