"""A grid goes in, the launches that the hardware takes come out, each with its words of the block.

Metal's grids may have as many threadgroups along y and z as along x; CUDA takes 65,535 there. A
larger grid is launched in parts, one behind the other on the stream.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anymetal.engines.contract import Sizes
from anymetal.engines.cuda import driver
from anymetal.engines.cuda.launcher import Queue
from anymetal.errors import LimitError

MOST_GROUPS = (2**31 - 1, 65535, 65535)
_SHAPE = struct.Struct("<8I")  # grid, group_size, first_across


class Part(NamedTuple):
    """`words` are the shape in the block of arguments (anymetal/block.h)."""

    first: Sizes
    groups: Sizes
    words: bytes


def parts_of(kernel: str, threads: Sizes, group_size: Sizes) -> list[Part]:
    """One, but for large grids."""
    whole = tuple(-(-t // g) for t, g in zip(threads, group_size, strict=True))
    if whole[0] > MOST_GROUPS[0]:
        raise LimitError(
            f"{kernel}: a grid of {whole[0]} threadgroups along x; CUDA takes {MOST_GROUPS[0]}"
        )
    found = []
    for (y, down), (z, deep) in itertools.product(_pieces(whole, 1), _pieces(whole, 2)):
        words = _SHAPE.pack(*threads, *group_size, y, z)
        found.append(Part((0, y, z), (whole[0], down, deep), words))
    return found


def _pieces(groups: Sequence[int], axis: int) -> Iterator[tuple[int, int]]:
    most = MOST_GROUPS[axis]
    for first in range(0, groups[axis], most):
        yield first, min(most, groups[axis] - first)


def one_after_another(parts: Sequence[Part], puts: Sequence[Queue], block: int) -> Queue:
    """Queues all parts of a launch. The words of the first stand in the block before and after."""

    def put() -> int:
        try:
            for part, queue in zip(parts, puts, strict=True):
                driver.write(block, part.words)
                status = queue()
                if status:
                    return status
            return 0
        finally:
            driver.write(block, parts[0].words)

    return put
