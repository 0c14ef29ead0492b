"""A kernel made ready for checking: instrumented, compiled, with the table of its access sites."""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anymetal.engines.coroutine import jit
from anymetal.engines.coroutine.engine import CoroutineExecutable, transform
from anymetal.engines.coroutine.runtime import Runtime, start_runtime
from anymetal.msl import clang
from anymetal.nouns import Parameter, Position, Prepared, Program
from anymetal.passes.coroutine import Site
from anymetal.passes.debug_info import DebugInfo, Spot, strip_metadata
from anymetal.passes.instrument import AccessSite, Instrument, Instrumented
from anymetal.passes.ir import parse

_SHADOW = Path(__file__).parent / "shadow"
_SYMBOLS = (
    "am_check_slowly",
    "am_check_array_slowly",
    "am_check_table_slowly",
    "am_check_event",
)
_start_lock = threading.Lock()


@functools.cache
def _runtime() -> Runtime:
    runtime = start_runtime(include_dirs=(_SHADOW,))
    for symbol in _SYMBOLS:
        jit.provide_symbol(symbol, runtime.address(symbol))
    return runtime


def checked_runtime() -> Runtime:
    """The engine's runtime with the checker as its listener."""
    with _start_lock:
        return _runtime()


@functools.cache
def _fast_checks() -> str:
    return clang.compile_support(_SHADOW / "fast.cpp")


@dataclass(frozen=True)
class SuspendSite:
    """A barrier or collective: the word given to am_suspend, and where it is written."""

    what: int
    position: Position | None


class CheckedProgram:
    """One kernel, instrumented. `numbers` adds the search for the first NaN or infinity."""

    def __init__(self, prepared: Prepared, program: Program, *, numbers: bool, level: int) -> None:
        self.prepared = prepared
        self.program = program
        module = parse(jit.inlined(program.ir))
        info = DebugInfo(module)
        self.instrumented: Instrumented = Instrument(module, numbers=numbers).run()
        metadata, sites, self.places = transform(module, program)
        self.suspends = [SuspendSite(0, None), *(self._suspend(site, info) for site in sites)]
        strip_metadata(module)
        runtime = checked_runtime()
        payload = jit.object_code(str(module), level, linked=_fast_checks())
        self.executable = CoroutineExecutable(payload, metadata, runtime)

    def _suspend(self, site: Site, info: DebugInfo) -> SuspendSite:
        return SuspendSite(site.what, self._position(info.spots(site.location)))

    def position(self, site: int) -> Position | None:
        """The author's place of an access site."""
        return self._position(self.site(site).spots)

    def site(self, number: int) -> AccessSite:
        return self.instrumented.sites[number]

    def _position(self, spots: tuple[Spot, ...] | list[Spot]) -> Position | None:
        """The innermost place that is the author's: our own headers are not."""
        for spot in spots:
            if spot.file == clang.INPUT_NAME:
                row = spot.line - self.program.first_line + 1
                position = self.prepared.source_map.position(row, spot.column)
                if position is not None:
                    return position
        return None

    def excerpt(self, position: Position | None) -> str:
        text = self.prepared.source_map.excerpt(position) if position else None
        return (text or "").strip()

    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's parameters as written."""
        return self.prepared.entry_points[self.program.name].parameters

    def parameter_position(self, name: str) -> Position | None:
        """Where a parameter is declared."""
        return next((p.position for p in self.parameters() if p.name == name), None)

    def kernel_position(self) -> Position:
        """Where the kernel is defined."""
        return self.prepared.entry_points[self.program.name].position

    def variable_name(self, slot: int) -> str:
        """The name of a threadgroup variable."""
        variables = self.program.threadgroup_variables
        return next((v.name for v in variables if v.slot == slot), f"threadgroup variable {slot}")

    def unwritten(self, checks: Any, region: int) -> tuple[int, int, int]:
        """Cells of a buffer the launch did not write, the first of them, and those it did write."""
        function = ctypes.CFUNCTYPE(
            ctypes.c_ulong, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
        )(checked_runtime().address("am_unwritten"))
        first, written = ctypes.c_ulong(), ctypes.c_ulong()
        missing = function(
            ctypes.addressof(checks), region, ctypes.addressof(first), ctypes.addressof(written)
        )
        return int(missing), first.value, written.value
