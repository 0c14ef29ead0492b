"""Attention over a paged cache, and the upkeep of one."""

from anymetal.ops.paged.attention import paged_attention
from anymetal.ops.paged.blocks import copy_blocks, reshape_and_cache, swap_blocks
from anymetal.ops.paged.cache import PagedCache

__all__ = ["PagedCache", "copy_blocks", "paged_attention", "reshape_and_cache", "swap_blocks"]
