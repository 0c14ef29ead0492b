"""The instrumentation that counts: how often a kernel did what in one run."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from anymetal.engines.contract import Engine, Executable
from anymetal.ir import parse
from anymetal.nouns import Program
from anymetal.passes.count.blocks import BUFFER, Costs, count_blocks


@dataclass(frozen=True)
class Counts:
    """What all threads of one run did together.

    Instructions are LLVM's, after the compiler's first optimisation: good for comparing versions of
    a kernel, not for what an Apple GPU executes. Collectives count as this engine does them, and
    functions that could not be inlined (recursive ones) not at all. Memory is what the code asks
    for: device is every buffer, caches are not modelled.
    """

    instructions: int = 0
    floating_point: int = 0
    device_reads: int = 0
    device_bytes_read: int = 0
    device_writes: int = 0
    device_bytes_written: int = 0
    device_atomics: int = 0
    threadgroup_reads: int = 0
    threadgroup_bytes_read: int = 0
    threadgroup_writes: int = 0
    threadgroup_bytes_written: int = 0
    threadgroup_atomics: int = 0
    barriers: int = 0
    simdgroup_barriers: int = 0
    collectives: int = 0
    # Bytes read, written or changed by atomics, of each buffer; -1 is one of several.
    buffer_bytes: Mapping[int, int] = field(default_factory=dict)


class CountedExecutable:
    """A kernel with counters. They stay where they are as long as this lives."""

    def __init__(self, program: Program, engine: Engine) -> None:
        module = parse(program.ir)
        self._costs: Costs = count_blocks(module, self._reserve)
        counting = replace(program, ir=str(module))
        self.executable: Executable = engine.compile(counting, patient=True)
        self.payload, self.metadata = self.executable.payload, self.executable.metadata

    def _reserve(self, count: int) -> int:
        self._counters = (ctypes.c_uint64 * count)()
        return ctypes.addressof(self._counters)

    def take(self) -> Counts:
        """What happened since the last call."""
        total: Counter[str] = Counter()
        for passes, cost in zip(self._counters, self._costs, strict=True):
            for name, number in cost.items():
                total[name] += passes * number
        ctypes.memset(self._counters, 0, ctypes.sizeof(self._counters))
        buffers = {
            int(name.removeprefix(BUFFER)): number
            for name, number in total.items()
            if name.startswith(BUFFER)
        }
        numbers = {one.name: total[one.name] for one in fields(Counts) if one.type == "int"}
        return Counts(**numbers, buffer_bytes=buffers)


class Counted:
    """Counters in every block. Their addresses are in the code, so it is not kept; they are not
    atomic, so it runs on one processor, thread by thread."""

    name, key, engine = "counted", "", "coroutine"
    optimise, kept, quotes = True, False, False

    def compile(self, program: Program, engine: Engine, *, patient: bool) -> CountedExecutable:
        return CountedExecutable(program, engine)

    def load(self, payload: bytes, metadata: dict[str, Any], engine: Engine) -> CountedExecutable:
        raise NotImplementedError("counters are addresses of one process")


COUNTED = Counted()
