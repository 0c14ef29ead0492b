"""The reference engine: every GPU thread is a coroutine, or a turn of a loop where nothing
stops."""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from dataclasses import asdict
from typing import Any

from anymetal import settings
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.layout import CALL_PART, KERNEL_PART, LogSink, Outcome
from anymetal.engines.cpu.messages import deliver
from anymetal.engines.cpu.runtime import Runtime, runtime, source_digest
from anymetal.errors import KernelTimeout, LimitError
from anymetal.ir import Module, parse
from anymetal.machine.layout import THREADGROUP_ARGUMENTS
from anymetal.nouns import MAX_GROUP_SIZE, SIMDGROUP, Argument, Launch, Position, Program
from anymetal.passes.alignment import clamp_alignment
from anymetal.passes.arithmetic import define_integer_arithmetic
from anymetal.passes.bfloat_rounding import round_in_integers
from anymetal.passes.coroutine import COROUTINE, Site, has_suspends, make_coroutine
from anymetal.passes.invariant import mark_invariant_loads
from anymetal.passes.loop import make_loop
from anymetal.passes.machine import (
    GROUP_MAIN,
    THREAD_MAIN,
    answer_at_once,
    lay_out_threadgroup_memory,
    parameters_of,
    refuse_primitives_outside,
    replace_self,
)
from anymetal.store.cache import digest_of

MAX_THREADGROUP_BYTES = 32 * 1024


class CoroutineEngine:
    """Compiles programs for this machine's processors."""

    name = "coroutine"

    @functools.cached_property
    def version(self) -> str:
        return digest_of(source_digest(), jit.host_processor(), str(OPTIMISATION))

    def compile(self, program: Program) -> CoroutineExecutable:
        module = parse(program.ir)
        metadata, _, _ = transform(module, program)
        payload = jit.object_code(str(module), OPTIMISATION)
        return self.load(payload, metadata)

    def load(self, payload: bytes, metadata: dict[str, Any]) -> CoroutineExecutable:
        return CoroutineExecutable(payload, metadata)


OPTIMISATION = 3


def transform(
    module: Module, program: Program
) -> tuple[dict[str, Any], list[Site], dict[int, tuple[int, int]]]:
    """Runs the passes. Returns the executable's metadata, the sites where threads stop, and the
    place of each threadgroup variable by its slot."""
    answer_at_once(module, at_once=False)
    metadata, places = prepare_module(module, program)
    metadata["engine"] = CoroutineEngine.name
    metadata["coroutine"] = has_suspends(module)
    sites: list[Site] = []
    if metadata["coroutine"]:
        sites = make_coroutine(module)
    else:
        make_loop(module)
    return metadata, sites, places


def prepare_module(
    module: Module, program: Program
) -> tuple[dict[str, Any], dict[int, tuple[int, int]]]:
    """The passes that every engine needs: the machine under the kernel, arithmetic as on a GPU."""
    refuse_primitives_outside(module, program.name)
    function = module.function(THREAD_MAIN)
    used = sorted(_used_buffers(module))
    uses_log = any(True for _ in function.calls("am_log"))
    constants = {
        a.index for a in program.arguments if a.space == "constant" and a.index is not None
    }
    mark_invariant_loads(module, constants)
    replace_self(function)
    places = lay_out_threadgroup_memory(function)
    static_memory = max((offset + size for offset, size in places.values()), default=0)
    if static_memory > MAX_THREADGROUP_BYTES:
        raise LimitError(
            f"kernel '{program.name}' declares {static_memory} bytes of threadgroup memory; "
            f"the limit is {MAX_THREADGROUP_BYTES}",
            _first_beyond(program, places),
        )
    if not jit.rounds_bfloats():
        round_in_integers(module)
    for part in module.functions:
        clamp_alignment(part)
        define_integer_arithmetic(part)
    metadata = {
        "name": program.name,
        "static_memory": static_memory,
        "used_buffers": used,
        "uses_log": uses_log,
        "max_threads": min(program.max_total_threads or MAX_GROUP_SIZE, MAX_GROUP_SIZE),
        "arguments": [asdict(argument) for argument in program.arguments],
    }
    return metadata, places


def _first_beyond(program: Program, places: dict[int, tuple[int, int]]) -> Position | None:
    """Where the threadgroup variable is declared that does not fit any more."""
    positions = {variable.slot: variable.position for variable in program.threadgroup_variables}
    beyond = (slot for slot in sorted(places) if sum(places[slot]) > MAX_THREADGROUP_BYTES)
    return positions.get(next(beyond))


def _used_buffers(module: Module) -> set[int]:
    """Indices of the buffers the kernel looks at, from its reads of the table of addresses."""
    function = module.function(THREAD_MAIN)
    table = re.escape(parameters_of(function)[0])
    offset = re.compile(rf"getelementptr .*ptr {table}, i64 (\d+)")
    direct = re.compile(rf"load .*ptr {table}[, ]|load .*ptr {table}$")
    used: set[int] = set()
    for instruction in function.instructions():
        match = offset.search(instruction.text)
        if match:
            scale = 1 if "getelementptr inbounds nuw i8" in instruction.text else 8
            used.add(int(match.group(1)) * scale // 8)
        elif direct.search(instruction.text):
            used.add(0)
    return used


class CoroutineExecutable:
    """A compiled kernel. Launches from several Python threads at once are fine."""

    def __init__(
        self, payload: bytes, metadata: dict[str, Any], host: Runtime | None = None
    ) -> None:
        self.payload = payload
        self.metadata = metadata
        self.name: str = metadata["name"]
        self.arguments = tuple(Argument.from_row(row) for row in metadata["arguments"])
        self.max_threads_per_threadgroup: int = metadata["max_threads"]
        self.thread_execution_width = SIMDGROUP
        self.static_threadgroup_memory_length: int = metadata["static_memory"]
        self.used_buffers = frozenset(metadata["used_buffers"])
        self._runtime = host or runtime()
        self._load_code()

    def _load_code(self) -> None:
        coroutine = self.metadata["coroutine"]
        self._code = jit.LoadedCode(self.payload)
        self._address = self._code.address(COROUTINE if coroutine else GROUP_MAIN)
        self._frame_size = self._runtime.frame_size(self._address) if coroutine else 0
        self._fixed = self._fixed_part({})

    def _fixed_part(self, dynamic: dict[int, int]) -> bytes:
        lengths = [dynamic.get(index, 0) for index in range(THREADGROUP_ARGUMENTS)]
        static = self.static_threadgroup_memory_length
        return KERNEL_PART.pack(self._address, self._frame_size, 0, 0, 0, static, *lengths)

    def _launch_part(
        self,
        threads: tuple[int, int, int],
        group_size: tuple[int, int, int],
        dynamic: dict[int, int] | None,
    ) -> bytes:
        """The part of Launch that the kernel fixes."""
        return self._fixed_part(dynamic) if dynamic else self._fixed

    def run(self, launch: Launch, workers: int = 1) -> None:
        """Runs a launch; the addresses in it must stay valid until this returns."""
        table = (ctypes.c_void_p * max(len(launch.buffers), 1))(*launch.buffers)
        self.launch(
            ctypes.addressof(table),
            launch.threads,
            launch.group_size,
            workers,
            launch.threadgroup_memory,
        )

    def launch(
        self,
        buffers: int,
        threads: tuple[int, int, int],
        group_size: tuple[int, int, int],
        workers: int,
        threadgroup_memory: dict[int, int] | None = None,
        listener_data: int = 0,
    ) -> None:
        """The short way in: `buffers` is the address of a table of buffer addresses."""
        fixed = self._launch_part(threads, group_size, threadgroup_memory)
        on_main = threading.get_ident() == _MAIN_THREAD
        limit = settings.TIME_LIMIT.number()
        sink = LogSink() if self.metadata["uses_log"] else None
        changing = CALL_PART.pack(
            buffers,
            *threads,
            *group_size,
            workers,
            on_main,
            limit,
            ctypes.addressof(sink) if sink else 0,
            listener_data,
        )
        outcome = self._runtime.run(changing + fixed)
        if sink is not None:
            deliver(sink, self.name)
        if outcome:
            self._raise(outcome, limit)

    def _raise(self, outcome: int, limit: float) -> None:
        if outcome == Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        if outcome == Outcome.TIMED_OUT:
            raise KernelTimeout(
                f"kernel '{self.name}' finished no threadgroup for {limit:g} s and was stopped; "
                f"set {settings.TIME_LIMIT.variable} (seconds, 0 for no limit) if it is meant to "
                "take that long"
            )
        assert outcome == Outcome.NO_MEMORY
        raise MemoryError(f"kernel '{self.name}': not enough memory for its threads")


_MAIN_THREAD = threading.main_thread().ident
