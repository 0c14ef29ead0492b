"""The reference engine: every GPU thread is a coroutine, or a turn of a loop where nothing
stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from anymetal.engines.contract import Sizes
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.executable import CpuExecutable
from anymetal.engines.cpu.layout import KERNEL_PART
from anymetal.engines.cpu.lowering import lower
from anymetal.engines.cpu.runtime import Runtime, runtime, start_early
from anymetal.engines.cpu.target import current
from anymetal.ir import Module, parse
from anymetal.machine.layout import THREADGROUP_ARGUMENTS
from anymetal.nouns import Program, Target
from anymetal.passes.check.debug_info import strip_metadata
from anymetal.passes.lower.coroutine import COROUTINE, Site, has_suspends, make_coroutine
from anymetal.passes.lower.loop import make_loop
from anymetal.passes.lower.machine import GROUP_MAIN, answer_at_once
from anymetal.passes.lower.powers import define_powers

OPTIMISATION = 3


@dataclass(frozen=True)
class Listener:
    """What watches a run: the runtime it is built into, and IR that instrumented code calls."""

    runtime: Callable[[], Runtime]
    linked: Callable[[], str]
    level: int


@dataclass(frozen=True)
class Layout:
    """The sites where threads stop, and offset and size of each threadgroup variable by slot."""

    sites: list[Site]
    variables: dict[int, tuple[int, int]]


class LinkedCode(Protocol):
    """Code in this process, whose functions are found by name."""

    def address(self, symbol: str) -> int: ...


class ThreadEngine:
    """Compiles programs for this machine's processors."""

    name = "coroutine"

    @property
    def target(self) -> Target:
        return current()

    def compile(self, program: Program, *, patient: bool = False) -> ThreadExecutable:
        module = parse(program.ir)
        metadata, _ = transform(module, program)
        return self.load(jit.object_code(str(module), OPTIMISATION), metadata)

    def compile_listened(
        self, module: Module, program: Program, listener: Listener
    ) -> tuple[ThreadExecutable, Layout]:
        """The executable of an instrumented module, and what the passes made of it."""
        metadata, layout = transform(module, program)
        strip_metadata(module)
        host = listener.runtime()
        payload = jit.object_code(str(module), listener.level, linked=listener.linked())
        return ThreadExecutable(payload, metadata, host), layout

    def load(self, payload: bytes, metadata: dict[str, Any]) -> ThreadExecutable:
        return ThreadExecutable(payload, metadata, runtime())

    def start_early(self) -> None:
        start_early()


def transform(module: Module, program: Program) -> tuple[dict[str, Any], Layout]:
    """Makes a loop over threads, or a coroutine, of a kernel."""
    answer_at_once(module, at_once=False)
    define_powers(module)
    metadata, variables = lower(module, program)
    metadata["engine"] = ThreadEngine.name
    metadata["coroutine"] = has_suspends(module)
    sites: list[Site] = []
    if metadata["coroutine"]:
        sites = make_coroutine(module)
    else:
        make_loop(module)
    return metadata, Layout(sites, variables)


class ThreadExecutable(CpuExecutable):
    """A kernel whose threads run one by one."""

    def __init__(
        self,
        payload: bytes,
        metadata: dict[str, Any],
        runtime: Runtime,
        code: LinkedCode | None = None,
    ) -> None:
        super().__init__(payload, metadata, runtime)
        coroutine = metadata["coroutine"]
        self._code: LinkedCode = code or jit.LoadedCode(payload)
        self._address = self._code.address(COROUTINE if coroutine else GROUP_MAIN)
        self._frame_size = runtime.frame_size(self._address) if coroutine else 0
        self._without_memory = self._pack({})

    def address(self, symbol: str) -> int:
        """Where a function or variable of the code lies, as long as this lives."""
        return self._code.address(symbol)

    def _pack(self, dynamic: dict[int, int]) -> bytes:
        lengths = [dynamic.get(index, 0) for index in range(THREADGROUP_ARGUMENTS)]
        static = self.static_threadgroup_memory_length
        return KERNEL_PART.pack(self._address, self._frame_size, 0, 0, 0, static, *lengths)

    def _fixed_part(
        self, threads: Sizes, group_size: Sizes, dynamic: dict[int, int] | None
    ) -> bytes:
        return self._pack(dynamic) if dynamic else self._without_memory
