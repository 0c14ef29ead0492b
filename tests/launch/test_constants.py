"""Bytes on a device, in a ring for the launches of a stream; the driver is a stand-in."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch

from anymetal.engines.cuda import driver
from anymetal.launch import constants, recorded
from anymetal.launch.constants import Ring


class Memory:
    """What was copied, in order; `read` is what a launch finds that is queued now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: int = 4096, size: int = 1 << 16):
        self.start, self.bytes = start, bytearray(size)
        self.sent = 0
        monkeypatch.setattr(driver, "send", self.send)

    def send(self, address: int, data: bytes, stream: int, device: int) -> None:
        at = address - self.start
        assert 0 <= at <= at + len(data) <= len(self.bytes)
        self.bytes[at : at + len(data)] = data
        self.sent += 1

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.bytes[address - self.start :][:size])


@pytest.mark.parametrize("seed", range(5))
def test_ring_finds_what_is_there_and_nothing_else(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any time everything that is found has its bytes, whatever was written since."""
    numbers = random.Random(seed)
    memory = Memory(monkeypatch)
    ring = Ring(0, 0, memory.start, len(memory.bytes))
    known: list[bytes] = []
    for _ in range(3000):
        if known and numbers.random() < 0.3:
            data = numbers.choice(known[-60:])
        else:
            data = numbers.randbytes(numbers.choice((0, 1, 8, 255, 256, 257, 3000, 20_000)))
            known.append(data)
        address = ring.place(data)
        assert address % 256 == 0
        assert memory.read(address, len(data)) == data
        for other in (data, *known[-20:]):
            found = ring.find(other)
            assert found is None or memory.read(found, len(other)) == other
    assert memory.sent > 2000
    assert sum(ring.find(data) is not None for data in set(known)) >= 3


def test_bytes_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(monkeypatch)
    ring = Ring(0, 0, memory.start, len(memory.bytes))
    places = [ring.place(data) for data in (b"one", b"other", b"one", b"other")]
    assert memory.sent == 2
    assert places[:2] == places[2:]
    assert ring.find(b"on") is None


def test_each_stream_and_device_has_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are there for the launches behind them on their stream, and for no others."""
    sent: list[tuple[int, int, int]] = []
    asked: list[int] = []
    monkeypatch.setattr(constants, "_rings", {})
    monkeypatch.setattr(recorded, "is_recording", lambda: False)
    monkeypatch.setattr(driver, "send", lambda address, _, *where: sent.append((address, *where)))
    monkeypatch.setattr(driver, "memory", lambda device, _: (asked.append(device), device << 30)[1])
    for device, stream in ((1, 7), (1, 8), (2, 7), (1, 7)):
        assert (constants.find(device, stream, b"data") is None) == (len(sent) < 3)
        constants.place(device, stream, b"data")
    assert sent == [(1 << 30, 7, 1), (1 << 30, 8, 1), (2 << 30, 7, 2)]
    assert asked == [1, 1, 2]
    monkeypatch.setattr(recorded, "is_recording", lambda: True)
    assert constants.find(1, 7, b"data") is None


def test_lasting_tensor_of_a_device_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[bytes] = []
    monkeypatch.setattr(constants, "_lasting", {0: {}})
    monkeypatch.setattr(driver, "memory", lambda device, size: 512)
    monkeypatch.setattr(driver, "store", lambda _, data: stored.append(data))
    monkeypatch.setattr(driver, "outside_recordings", contextlib.nullcontext)
    seen: list[tuple[object, torch.device]] = []
    monkeypatch.setattr(torch, "as_tensor", lambda value, device: seen.append((value, device)))
    values = torch.arange(3, dtype=torch.float32)
    for _ in range(2):
        constants.lasting_tensor(values, torch.device("cuda", 0))
    assert stored == [values.numpy().tobytes()]
    interface = seen[0][0].__cuda_array_interface__  # type: ignore[attr-defined]
    assert interface == {"shape": (3,), "typestr": "<f4", "data": (512, False), "version": 3}
    assert constants.lasting_tensor(values, torch.device("cpu")) is values
