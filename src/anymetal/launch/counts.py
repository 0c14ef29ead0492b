"""A kernel and its counters go in; how often it did what in one run comes out."""

from __future__ import annotations

import ctypes
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from anymetal.engines.cpu.threads import CoroutineEngine, CoroutineExecutable
from anymetal.ir import parse
from anymetal.launch.workshop import Workshop
from anymetal.msl.compile import compile_program
from anymetal.nouns import Program, Scalar
from anymetal.passes.counting import BUFFER, Costs, count_blocks


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


class CountingProgram:
    """A kernel compiled with counters. The counters stay where they are as long as this lives."""

    def __init__(self, program: Program) -> None:
        module = parse(program.ir)
        self._costs: Costs = count_blocks(module, self._reserve)
        self.executable: CoroutineExecutable = CoroutineEngine().compile(
            replace(program, ir=str(module))
        )

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


_kept: weakref.WeakKeyDictionary[Workshop, dict[str, CountingProgram]] = weakref.WeakKeyDictionary()


def compile_counting(
    workshop: Workshop, kernel: str, constants: Mapping[str, Scalar]
) -> CountingProgram:
    """The kernel with counters of its own, kept as long as its source is."""
    programs = _kept.setdefault(workshop, {})
    key = repr((kernel, sorted(constants.items())))
    if key not in programs:
        named: dict[int | str, Scalar] = {name: constants[name] for name in constants}
        programs[key] = CountingProgram(compile_program(workshop.prepared(), kernel, named))
    return programs[key]
