"""Grids in parts: every threadgroup is in one, and finds its place in the block of arguments."""

from __future__ import annotations

import ctypes
import functools
import math
import struct

import pytest

from anymetal.engines.cuda.parts import MOST_GROUPS, one_after_another, parts_of
from anymetal.errors import LimitError


def test_grid_beyond_the_driver_is_an_error() -> None:
    with pytest.raises(LimitError, match="atomics: a grid of 2147483648 threadgroups along x"):
        parts_of("atomics", (2**31, 1, 1), (1, 1, 1))


@pytest.mark.parametrize(
    ("grid", "group", "count"),
    [
        ((33, 65535, 65535), (32, 1, 1), 1),
        ((33, 65536, 2), (32, 1, 1), 2),
        ((7, 3, 200_001), (4, 1, 3), 2),
        ((1, 131_071, 65_537), (1, 1, 1), 6),
    ],
)
def test_large_grids_are_launched_in_parts(
    grid: tuple[int, int, int], group: tuple[int, int, int], count: int
) -> None:
    """Every threadgroup is in one of them."""
    parts = parts_of("k", grid, group)
    whole = [-(-t // g) for t, g in zip(grid, group, strict=True)]
    assert len(parts) == count
    assert sum(math.prod(part.groups) for part in parts) == math.prod(whole)
    starts = {part.first for part in parts}
    assert len(starts) == count
    for part in parts:
        assert all(0 < n <= most for n, most in zip(part.groups, MOST_GROUPS, strict=True))
        ends = [f + n for f, n in zip(part.first, part.groups, strict=True)]
        assert all(
            end <= w and f % m == 0
            for end, w, f, m in zip(ends, whole, part.first, MOST_GROUPS, strict=True)
        )
        assert struct.unpack("<8I", part.words) == (*grid, *group, *part.first[1:])


def test_parts_of_a_launch_find_their_place_in_the_block() -> None:
    """A part that is refused is the last; the block has the first part's words again."""
    block = ctypes.create_string_buffer(32)
    parts = parts_of("k", (1, 200_000, 1), (1, 1, 1))
    seen: list[bytes] = []

    def queue(status: int) -> int:
        seen.append(block.raw)
        return status

    for statuses, number in (((0, 0, 0, 0), 4), ((0, 7, 0, 0), 2)):
        seen.clear()
        puts = [functools.partial(queue, status) for status in statuses]
        assert one_after_another(parts, puts, ctypes.addressof(block))() == max(statuses)
        assert seen == [part.words for part in parts[:number]]
        assert block.raw == parts[0].words
