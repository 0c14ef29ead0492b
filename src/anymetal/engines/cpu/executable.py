"""What executables of the CPU engines have in common: a launch is handed to the runtime."""

from __future__ import annotations

import ctypes
import threading
from abc import ABC, abstractmethod
from typing import Any

from anymetal import settings
from anymetal.engines.contract import Sizes
from anymetal.engines.cpu.layout import BUFFERS_PART, CALL_PART, STACK_BYTES, LogSink, Outcome
from anymetal.engines.cpu.messages import deliver
from anymetal.engines.cpu.runtime import Runtime
from anymetal.errors import KernelAssertion, KernelFault, KernelTimeout
from anymetal.nouns import SIMDGROUP, Argument

# Ends that an assertion explains; a wrong index that it has seen may well end in a fault.
_KERNELS_OWN = (
    Outcome.FINISHED,
    Outcome.FAULTED,
    Outcome.STACK_OVERFLOW,
    Outcome.BESIDE_MEMORY,
)
_FINISHED = int(Outcome.FINISHED)  # a plain number is compared sooner
_MOST_SHAPES = 64  # whose launches are kept
_MAIN_THREAD = threading.main_thread().ident


class CpuExecutable(ABC):
    """A compiled kernel. Launches from several Python threads at once are fine."""

    def __init__(self, payload: bytes, metadata: dict[str, Any], runtime: Runtime) -> None:
        self.payload = payload
        self.metadata = metadata
        self.name: str = metadata["name"]
        self.arguments = tuple(Argument.from_row(row) for row in metadata["arguments"])
        self.max_threads_per_threadgroup: int = metadata["max_threads"]
        self.thread_execution_width = SIMDGROUP
        self.static_threadgroup_memory_length: int = metadata["static_memory"]
        self.used_buffers = frozenset(metadata["used_buffers"])
        self._runtime = runtime
        self._uses_log: bool = metadata["uses_log"]
        self._launches: dict[tuple[object, ...], bytes] = {}

    @abstractmethod
    def _fixed_part(
        self, threads: Sizes, group_size: Sizes, dynamic: dict[int, int] | None
    ) -> bytes:
        """The part of Launch that the kernel fixes."""

    def launch(
        self,
        buffers: int,
        threads: Sizes,
        group_size: Sizes,
        workers: int,
        threadgroup_memory: dict[int, int] | None = None,
        listener_data: int = 0,
    ) -> None:
        """The short way in: `buffers` is the address of a table of buffer addresses."""
        on_main = threading.get_ident() == _MAIN_THREAD
        limit = settings.TIME_LIMIT.value()
        sink = None
        if self._uses_log or threadgroup_memory or listener_data:
            sink = LogSink() if self._uses_log else None
            log = ctypes.addressof(sink) if sink else 0
            call = CALL_PART.pack(
                *threads, *group_size, workers, on_main, limit, log, listener_data
            )
            known = call + self._fixed_part(threads, group_size, threadgroup_memory)
        else:
            key = (threads, group_size, workers, on_main, limit)
            known = self._launches.get(key) or self._new_launch(key, threads, group_size)
        outcome = self._runtime.run(BUFFERS_PART.pack(buffers) + known)
        if outcome == _FINISHED and sink is None:
            return
        failures = deliver(sink, self.name, self._runtime) if sink is not None else ()
        if failures and outcome in _KERNELS_OWN:
            raise KernelAssertion(self.name, failures)
        if outcome not in (Outcome.FINISHED, Outcome.ENOUGH):
            self._raise(outcome, limit)

    def _new_launch(self, key: tuple[object, ...], threads: Sizes, group_size: Sizes) -> bytes:
        """All of Launch but the buffers, kept for the next one of this shape."""
        if len(self._launches) >= _MOST_SHAPES:
            self._launches.clear()
        (x, y, z), (columns, rows, layers) = threads, group_size
        call = CALL_PART.pack(x, y, z, columns, rows, layers, *key[2:], 0, 0)
        self._launches[key] = call + self._fixed_part(threads, group_size, None)
        return self._launches[key]

    def _raise(self, outcome: int, limit: float) -> None:
        if outcome == Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        if outcome == Outcome.TIMED_OUT:
            raise KernelTimeout(
                f"kernel '{self.name}' finished no threadgroup for {limit:g} s and was stopped; "
                f"set {settings.TIME_LIMIT.variable} (seconds, 0 for no limit) if it is meant to "
                "take that long"
            )
        if outcome == Outcome.FAULTED:
            raise KernelFault(
                f"kernel '{self.name}' touched an address where there is no memory and was stopped;"
                " what it wrote before that stays written, perhaps outside of its buffers. Run it"
                " under `anymetal check`, or inside `with anymetal.check() as report:`, to see the"
                " line"
            )
        if outcome == Outcome.BESIDE_MEMORY:
            raise KernelFault(
                f"kernel '{self.name}' wrote outside of its threadgroup memory and was stopped. Run"
                " it under `anymetal check`, or inside `with anymetal.check() as report:`, to see"
                " the line"
            )
        if outcome == Outcome.STACK_OVERFLOW:
            raise KernelFault(
                f"kernel '{self.name}' needs more than {STACK_BYTES >> 20} MiB of stack and was"
                " stopped: a function that calls itself too often? `anymetal check` says where the"
                " kernel is",
                overflow=True,
            )
        assert outcome == Outcome.NO_MEMORY
        raise MemoryError(f"kernel '{self.name}': not enough memory for its threads")
