"""Bytes that the host gives, and that do not fit a launch's arguments: lists, and large structs.

They lie in memory of the driver's and not of torch's allocator, whose memory may belong to a CUDA
graph. Nothing waits: bytes are copied behind what a stream has, and in front of the launch.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import NamedTuple

import torch

from anymetal.engines.cuda import driver
from anymetal.launch import recorded

RING_BYTES = 2**20
LARGEST = 64 * 1024  # that a ring takes
_ALIGNMENT = 256

# Held from the time that constants are placed until the launch that reads them is queued.
LOCK = threading.RLock()


class _Entry(NamedTuple):
    start: int
    end: int
    data: bytes


class Ring:
    """Bytes for the launches of one stream. There they follow the launches that read what was in
    their place."""

    def __init__(self, device: int, stream: int, address: int, size: int = RING_BYTES) -> None:
        self._device, self._stream = device, stream
        self._address, self._size, self._next = address, size, 0
        self._entries: deque[_Entry] = deque()  # the oldest first
        self._places: dict[bytes, int] = {}

    def find(self, data: bytes) -> int | None:
        return self._places.get(data)

    def place(self, data: bytes) -> int:
        """The address of bytes, which are copied if they are not there."""
        known = self._places.get(data)
        if known is not None:
            return known
        start = self._room(-(-max(len(data), 1) // _ALIGNMENT) * _ALIGNMENT)
        self._entries.append(_Entry(start, self._next, data))
        address = self._places[data] = self._address + start
        driver.send(address, data, self._stream, self._device)
        return address

    def _room(self, size: int) -> int:
        if self._next + size > self._size:
            while self._entries and self._entries[0].start >= self._next:
                self._forget_oldest()
            self._next = 0
        start, self._next = self._next, self._next + size
        while self._entries and start <= self._entries[0].start < self._next:
            self._forget_oldest()
        return start

    def _forget_oldest(self) -> None:
        del self._places[self._entries.popleft().data]


_rings: dict[tuple[int, int], Ring] = {}
_lasting: defaultdict[int, dict[bytes, int]] = defaultdict(dict)


def find(device: int, stream: int, data: bytes) -> int | None:
    """Where bytes are already that a launch may read now; a graph's launches must read others."""
    ring = _rings.get((device, stream))
    return None if ring is None or recorded.is_recording() else ring.find(data)


def place(device: int, stream: int, data: bytes) -> int:
    """The address of at most LARGEST bytes, for a launch on a stream; for one that a CUDA graph
    records, for good."""
    if recorded.is_recording():
        return lasting(device, data)
    ring = _rings.get((device, stream))
    if ring is None:
        ring = Ring(device, stream, driver.memory(device, RING_BYTES))
        _rings[device, stream] = ring
    return ring.place(data)


def lasting(device: int, data: bytes) -> int:
    """The address of bytes that stay on the device. They are not given back: a graph may run for as
    long as the process does."""
    with LOCK:
        known = _lasting[device]
        if data not in known:
            known[data] = driver.memory(device, len(data))
            driver.store(known[data], data)
        return known[data]


def lasting_tensor(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the CPU as one on a device, to be read only, and kept as long as one likes."""
    if device.type != "cuda":
        return values.to(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    address = lasting(index, values.numpy().tobytes())
    where = {
        "shape": tuple(values.shape),
        "typestr": values.numpy().dtype.str,
        "data": (address, False),
        "version": 3,
    }
    with driver.outside_recordings():
        return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=where), device=device)
