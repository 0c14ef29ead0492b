"""A kernel as PTX. The driver makes machine code of it when it is first launched on a device."""

from __future__ import annotations

import ctypes
import math
import struct
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from anymetal import settings
from anymetal.engines.contract import Sizes
from anymetal.engines.cuda import driver, messages, watch
from anymetal.engines.cuda.block import block_of, values_in
from anymetal.engines.cuda.launcher import Queue
from anymetal.engines.cuda.parts import Part, one_after_another, parts_of
from anymetal.engines.cuda.unaligned import Places, take_anywhere
from anymetal.errors import EngineError, LimitError
from anymetal.nouns import MAX_GROUP_SIZE, SIMDGROUP, Argument

_KEPT_SHAPES = 4096
# From this width on a threadgroup that is alone on its multiprocessor leaves it idle at barriers.
# It is better off with all its registers where it would spill more bytes than these.
_WIDE, _FEW_SPILLED = 256, 192
_DEALT = 128  # simdgroups go to four parts of a multiprocessor by turns, each with its registers
_MOST_REGISTERS = 255  # of a thread
_FEWEST_REGISTERS = 64  # with fewer, most kernels that want more spill


_NO_LIMIT = 1e9  # seconds
SEPARATOR = "\0"  # of the texts in an executable's payload


def _is_whole(threads: Sizes, group_size: Sizes) -> bool:
    """Whether every threadgroup has all its threads, and these are whole simdgroups."""
    divides = not any(t % g for t, g in zip(threads, group_size, strict=True))
    return divides and math.prod(group_size) % SIMDGROUP == 0


def _width(group_size: Sizes) -> int:
    """Threads of a block: whole warps."""
    return -(-math.prod(group_size) // SIMDGROUP) * SIMDGROUP


class Text(NamedTuple):
    """Which of a kernel's texts a launch takes: that for usual ones, where it has one; and for the
    buffers that are not where vectors are aligned, what their addresses are multiples of."""

    usual: bool
    apart: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ReadyLaunch:
    """The shape of a launch as its block of arguments has it, and what queues it: as a whole, or
    part by part."""

    words: bytes
    put: Queue
    function: driver.Function
    parts: Sequence[tuple[Part, Queue]]

    def queue(self, put: Queue | None = None) -> None:
        put = put or self.put
        status = put()
        if status:
            self.function.again(status, put)


class CudaExecutable:
    """A compiled kernel. Launches from several Python threads at once are fine."""

    def __init__(self, payload: bytes, metadata: dict[str, Any]) -> None:
        self.payload = payload
        self.metadata = metadata
        self.name: str = metadata["name"]
        self.arguments = tuple(Argument.from_row(row) for row in metadata["arguments"])
        self.block = block_of(self.arguments)
        self.small_values = values_in(self.arguments, self.block)
        self.aligned = dict(metadata["aligned"])  # where the code takes buffers to lie
        self.max_threads_per_threadgroup: int = metadata["max_threads"]
        self.thread_execution_width = SIMDGROUP
        self.static_threadgroup_memory_length: int = metadata["static_memory"]
        self.used_buffers = frozenset(metadata["used_buffers"])
        self.uses_log: bool = metadata["uses_log"]
        self.asked_bytes: int = metadata["asked_bytes"]
        self._has_usual: bool = metadata["has_usual"]  # code of its own for usual launches
        self._telling = threading.Lock()
        self._functions: dict[tuple[int, int, Text], driver.Function] = {}
        self._loaded: dict[tuple[int, int, Text], driver.Function] = {}
        self._shapes: dict[tuple[Sizes, Sizes], list[Part]] = {}
        self._ready: dict[tuple[Any, ...], ReadyLaunch] = {}
        self.written: dict[int, bytes] = {}  # the shape that stands in each block of arguments

    @property
    def texts(self) -> list[str]:
        """The PTX for any launch; then that for usual ones, where it has code of its own."""
        return zlib.decompress(self.payload).decode().split(SEPARATOR)

    @property
    def ptx(self) -> str:
        return self.texts[0]

    def launch(
        self,
        buffers: int,
        threads: Sizes,
        group_size: Sizes,
        workers: int,
        threadgroup_memory: dict[int, int] | None = None,
        listener_data: int = 0,
    ) -> None:
        """Queues a dispatch on the current stream of a device. `buffers` is the address of the
        kernel's block of arguments, whose shape is filled in here; `workers` is the device."""
        stream = driver.current(workers)
        place, by_value = (threads, group_size, buffers, stream, workers), self.has_values(buffers)
        apart = self._apart(buffers)
        key = (*place, by_value, apart)
        ready = self._ready.get(key) if not threadgroup_memory else None
        if ready is None:
            arrays = threadgroup_memory or {}
            ready = self.prepared(*place, arrays, by_value=by_value, apart=apart)
            if not threadgroup_memory:
                if len(self._ready) >= _KEPT_SHAPES:
                    self._ready.clear()
                self._ready[key] = ready
        if self.written.get(buffers) is not ready.words:
            self.write_shape(buffers, ready)
        if self.uses_log:
            self._run_and_tell(ready, stream, place)
        else:
            ready.queue()

    def has_values(self, buffers: int) -> bool:
        """Whether constants that fit a block of arguments are in it, instead of their addresses."""
        addresses = self._addresses(buffers)
        return not any(addresses[index] for index in self.small_values)

    def _apart(self, buffers: int) -> tuple[tuple[int, int], ...]:
        """The buffers that are not aligned, and what their addresses are multiples of."""
        addresses = self._addresses(buffers)
        found = ((i, addresses[i] & -addresses[i], align) for i, align in self.aligned.items())
        return tuple((index, multiple) for index, multiple, align in found if 0 < multiple < align)

    def _addresses(self, buffers: int) -> ctypes.Array[ctypes.c_uint64]:
        start = buffers + self.block.addresses_at
        return (ctypes.c_uint64 * max(self.block.buffers, 1)).from_address(start)

    def write_shape(self, buffers: int, ready: ReadyLaunch) -> None:
        """The shape of a launch goes to its block of arguments."""
        driver.write(buffers, ready.words)
        self.written[buffers] = ready.words

    def _run_and_tell(
        self,
        ready: ReadyLaunch,
        stream: int,
        shape: tuple[Any, ...],
    ) -> None:
        """A launch of a kernel that sends messages: they are waited for, as on a CPU."""
        if torch.cuda.is_current_stream_capturing():
            raise EngineError(
                f"kernel '{self.name}' sends messages (os_log), which the host reads when it has"
                " ended: a CUDA graph cannot record it"
            )
        threads, group_size, buffers, *_ = shape
        address, size = ready.function.variable(messages.BUFFER)
        for part, put in ready.parts:
            with self._telling:
                driver.fill(address, size, stream)
                driver.write(buffers, part.words)
                ready.queue(put)
                driver.wait(stream, self.name)
                data = driver.fetch(address, size)
            messages.deliver(data, self.name, part.first, threads, group_size)
        driver.write(buffers, ready.words)

    def forget(self, buffers: int) -> None:
        """A new block of arguments lies where another one may have been."""
        self.written.pop(buffers, None)

    def prepared(
        self,
        threads: Sizes,
        group_size: Sizes,
        buffers: int,
        stream: int,
        device: int,
        arrays: dict[int, int],
        *,
        by_value: bool,
        apart: tuple[tuple[int, int], ...] = (),
    ) -> ReadyLaunch:
        """A launch whose block of arguments lacks nothing but its shape. `by_value`: constants that
        fit the block are in it. `apart`: the buffers that are not aligned."""
        shape = self._shapes.get((threads, group_size))
        if shape is None:
            if len(self._shapes) >= _KEPT_SHAPES:
                self._shapes.clear()
            shape = self._shapes[threads, group_size] = parts_of(self.name, threads, group_size)
        width = _width(group_size)
        memory = self._place_arrays(buffers, arrays) if arrays else self.asked_bytes
        usual = self._has_usual and by_value and _is_whole(threads, group_size)
        key = (device, width, Text(usual, apart))
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = self._load(*key)
        puts = [function.prepared(part.groups, width, memory, stream, buffers) for part in shape]
        put = puts[0] if len(puts) == 1 else one_after_another(shape, puts, buffers)
        return ReadyLaunch(shape[0].words, put, function, list(zip(shape, puts, strict=True)))

    def _place_arrays(self, buffers: int, lengths: dict[int, int]) -> int:
        """Where each [[threadgroup(n)]] parameter begins, behind what threads ask for; returns the
        size of all."""
        end, starts = self.asked_bytes, []
        for index in self.block.arrays:
            starts.append(end)
            end += lengths[index]
        driver.write(buffers + self.block.arrays_at, struct.pack(f"<{len(starts)}I", *starts))
        return end

    def _load(self, device: int, width: int, which: Text) -> driver.Function:
        """The kernel's code for threadgroups of some width: with as many registers as it likes, or
        with fewer where a threadgroup needs that, or where two could then be in flight. Where just
        two are, it may have all of theirs: unasked, the assembler lets loads wait for each other
        (attention of one query takes 118 where 128 are free). A kernel that says how many threads
        it can have at most has registers for so many."""
        declared = self.max_threads_per_threadgroup
        tells = driver.REGISTERS // declared <= _MOST_REGISTERS and declared < MAX_GROUP_SIZE
        chosen = self._loaded_for(device, declared if tells else 0, which)
        dealt = -(-width // _DEALT) * _DEALT
        if width > chosen.max_threads:
            chosen = self._loaded_for(device, dealt, which)
            if width > chosen.max_threads:
                raise LimitError(f"{self.name}: no code for threadgroups of {width} threads")
        if tells:
            return chosen
        fitting = driver.REGISTERS // (width * chosen.registers)
        has_all = chosen.registers == driver.registers_of(2 * dealt)
        two = fitting < 2 or (fitting == 2 and not has_all)
        if two and width >= _WIDE and 2 * width <= driver.REGISTERS // _FEWEST_REGISTERS:
            together = self._loaded_for(device, 2 * dealt, which)
            if together.local_bytes - chosen.local_bytes <= _FEW_SPILLED:
                return together
        return chosen

    def _loaded_for(self, device: int, threads: int, which: Text) -> driver.Function:
        """The code of which so many threads fit a multiprocessor; 0 leaves the number open."""
        function = self._loaded.get((device, threads, which))
        if function is None:
            text = self.texts[-1 if which.usual else 0]
            if which.apart:
                places = Places(self.block, {**self.aligned, **dict(which.apart)})
                text = take_anywhere(text, places)
            function = driver.load(text, self.name, device, threads=threads)
            if watch.TIME_LIMIT in text:
                seconds = settings.TIME_LIMIT.value() or _NO_LIMIT
                place, _ = function.variable(watch.TIME_LIMIT)
                driver.store(place, struct.pack("<q", int(seconds * 1e9)))
            self._loaded[device, threads, which] = function
        return function
