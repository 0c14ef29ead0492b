"""Tensors of one shape go in; rows that a kernel can walk come out, copied only where they must be.

A kernel over elements sees `rows` rows of `columns` neighbouring elements, each tensor with its own
distance between rows. A dense tensor is one row, whatever the order of its dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rows:
    """Tensors as rows: `strides[i]` elements lie between two rows of `tensors[i]`."""

    tensors: tuple[torch.Tensor, ...]
    rows: int
    columns: int
    strides: tuple[int, ...]

    def width(self, largest: int = 4) -> int:
        """The largest of 16, 8, 4 and 1 elements, up to a limit, that every row of every tensor
        starts at a multiple of."""
        for width in (16, 8, 4):
            even = self.rows == 1 or all(stride % width == 0 for stride in self.strides)
            if width <= largest and even and all(aligned(one, width) for one in self.tensors):
                return width
        return 1

    def whole_width(self, largest: int = 4) -> int:
        """The same for kernels that take whole vectors only: those that divide a row."""
        width = self.width(largest)
        while self.columns % width:
            width = width // 2 if width > 4 else 1
        return width


def aligned(tensor: torch.Tensor, width: int = 4) -> bool:
    """Whether a tensor starts where a vector of four of its elements may stand, or of `width`."""
    size = tensor.element_size()
    # What data_ptr() gives on a GPU is no address; buffers there start at multiples of 256 bytes.
    start = tensor.storage_offset() * size if tensor.is_mps else tensor.data_ptr()
    return start % (width * size) == 0


def memory_order(tensor: torch.Tensor) -> list[int]:
    """The dimensions from the widest stride to the narrowest, as `torch.empty_like` keeps them."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda i: (-strides[i], i))


def row_stride(tensor: torch.Tensor, split: int) -> int | None:
    """The distance between rows that the dimensions from `split` on make; None if there is none.

    The row itself must be dense, and the dimensions before `split` must be walked in equal steps.
    """
    if not _dense(tensor.shape[split:], tensor.stride()[split:]):
        return None
    steps = [(s, n) for s, n in zip(tensor.stride(), tensor.shape[:split], strict=False) if n != 1]
    for (outer, _), (inner, size) in itertools.pairwise(steps):
        if outer != inner * size:
            return None
    return steps[-1][0] if steps else 0


def as_rows(*tensors: torch.Tensor) -> Rows:
    """Tensors of one shape as rows, as long as possible, in the memory order of the last one.

    The last one may be written, so it is never copied: it must be made of rows. Others that do not
    fit are copied.
    """
    if all(tensor.is_contiguous() for tensor in tensors):  # most are: one row, in a third less time
        return _rows(tensors, 0, [0] * len(tensors))
    order = memory_order(tensors[-1])
    ordered = [tensor.permute(order) for tensor in tensors]
    split = common_split(*tensors)
    if split is None:
        split = common_split(tensors[-1])
    if split is None:
        raise ValueError(
            f"a tensor of shape {list(tensors[-1].shape)} with strides"
            f" {list(tensors[-1].stride())} is not made of rows"
        )
    fitting = [t if row_stride(t, split) is not None else t.contiguous() for t in ordered]
    return _rows(fitting, split, [row_stride(tensor, split) for tensor in fitting])


def common_split(*tensors: torch.Tensor) -> int | None:
    """The first dimension of the longest row that all tensors have, in the last one's order."""
    order = memory_order(tensors[-1])
    ordered = [tensor.permute(order) for tensor in tensors]
    for split in range(max(len(order), 1)):
        if all(row_stride(tensor, split) is not None for tensor in ordered):
            return split
    return None


def last_dimension_rows(*tensors: torch.Tensor) -> Rows:
    """Tensors of one shape as rows of the last dimension; those that do not fit are copied."""
    fitting = []
    strides: list[int | None] = []
    for tensor in tensors:
        split = tensor.dim() - 1
        fits = tensor if row_stride(tensor, split) is not None else tensor.contiguous()
        fitting.append(fits)
        strides.append(row_stride(fits, split))
    return _rows(fitting, tensors[0].dim() - 1, strides)


def group_shape(threads: tuple[int, int], size: int) -> tuple[int, int]:
    """A threadgroup of at most `size` threads for a grid of two dimensions: wide, then high."""
    wide = min(size, 1 << max(threads[0] - 1, 0).bit_length())
    return wide, max(1, min(size // wide, threads[1]))


def _rows(tensors: Sequence[torch.Tensor], split: int, strides: Sequence[int | None]) -> Rows:
    shape = tensors[0].shape
    return Rows(
        tuple(tensor.reshape(1) if tensor.dim() == 0 else tensor for tensor in tensors),
        math.prod(shape[:split]),
        math.prod(shape[split:]),
        tuple(stride or 0 for stride in strides),
    )


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
