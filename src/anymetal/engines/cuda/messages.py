"""os_log messages that a kernel left on the GPU go where those of a CPU go."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import NamedTuple

from anymetal.engines.contract import Sizes
from anymetal.engines.cpu import messages
from anymetal.machine.layout import LogValue

BUFFER = "am_log_messages"
_HEAD = struct.Struct("<2I")  # bytes that were asked for, messages that found no room
_RECORD = struct.Struct("<IiI3II3I")  # am_log_record


class _Message(NamedTuple):
    level: int
    group: Sizes
    thread: int
    values: bytes
    texts: tuple[str, str, str]


def deliver(data: bytes, kernel: str, first: Sizes, grid: Sizes, group_size: Sizes) -> None:
    """Hands the messages of one launch to `logging`, whose threadgroups count from `first` on."""
    _, dropped = _HEAD.unpack_from(data)
    for one in _messages(data[_HEAD.size :]):
        group = (one.group[0] + first[0], one.group[1] + first[1], one.group[2] + first[2])
        place = position(group, one.thread, grid, group_size)
        messages.log(kernel, one.level, one.texts, one.values, place)
    messages.tell_dropped(kernel, dropped)


def position(group: Sizes, index: int, grid: Sizes, group_size: Sizes) -> Sizes:
    """thread_position_in_grid of a thread by its threadgroup and its number in it."""
    starts = [place * size for place, size in zip(group, group_size, strict=True)]
    edges = [
        min(size, whole - start)
        for size, whole, start in zip(group_size, grid, starts, strict=True)
    ]
    row, x = divmod(index, edges[0])
    z, y = divmod(row, edges[1])
    return starts[0] + x, starts[1] + y, starts[2] + z


def _messages(data: bytes) -> Iterator[_Message]:
    start = 0
    while start + _RECORD.size <= len(data):
        size, level, count, x, y, z, index, *lengths = _RECORD.unpack_from(data, start)
        if size == 0:  # no further message, or one that found no room
            return
        at = start + _RECORD.size
        end = at + count * ctypes.sizeof(LogValue)
        texts = []
        values, at = data[at:end], end
        for length in lengths:
            texts.append(data[at : at + length].decode(errors="replace"))
            at += length
        subsystem, category, form = texts
        yield _Message(level, (x, y, z), index, values, (subsystem, category, form))
        start += size
