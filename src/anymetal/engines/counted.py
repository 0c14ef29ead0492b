"""The instrumentation that counts: how often a kernel did what in one run."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from anymetal.engines.contract import Engine, Executable
from anymetal.engines.cpu.threads.engine import ThreadEngine, ThreadExecutable
from anymetal.ir import parse
from anymetal.nouns import Program
from anymetal.passes.count.blocks import BUFFER, COUNTERS, count_blocks


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
    """A kernel with counters; they are variables of its code."""

    def __init__(self, executable: ThreadExecutable) -> None:
        self.executable = executable
        self.payload, self.metadata = executable.payload, executable.metadata
        self._costs: list[dict[str, int]] = executable.metadata["costs"]
        counters = ctypes.c_uint64 * len(self._costs)
        self._counters = counters.from_address(executable.address(COUNTERS))

    def totals(self) -> Counter[str]:
        """The costs of all that happened since the last call, by name."""
        total: Counter[str] = Counter()
        for passes, cost in zip(self._counters, self._costs, strict=True):
            for name, number in cost.items():
                total[name] += passes * number
        ctypes.memset(self._counters, 0, ctypes.sizeof(self._counters))
        return total

    def take(self) -> Counts:
        """What happened since the last call."""
        total = self.totals()
        buffers = {
            int(name.removeprefix(BUFFER)): number
            for name, number in total.items()
            if name.startswith(BUFFER)
        }
        numbers = {one.name: total[one.name] for one in fields(Counts) if one.type == "int"}
        return Counts(**numbers, buffer_bytes=buffers)


class Counted:
    """Counters in every block. They are not atomic, so the kernel runs on one processor, thread by
    thread."""

    name, key, engine = "counted", "", ThreadEngine.name
    optimise, quotes = True, False

    def compile(self, program: Program, engine: Engine, *, patient: bool) -> CountedExecutable:
        module = parse(program.ir)
        costs = count_blocks(module)
        executable = engine.compile(replace(program, ir=str(module)), patient=True)
        executable.metadata["costs"] = [dict(cost) for cost in costs]
        return _counted(executable)

    def load(self, payload: bytes, metadata: dict[str, Any], engine: Engine) -> CountedExecutable:
        return _counted(engine.load(payload, metadata))


def _counted(executable: Executable) -> CountedExecutable:
    assert isinstance(executable, ThreadExecutable)
    return CountedExecutable(executable)


COUNTED = Counted()
