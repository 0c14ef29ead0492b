"""A kernel made ready for checking: instrumented, compiled, with the table of its access sites."""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anymetal.checker import records
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.runtime import Runtime, start_runtime
from anymetal.engines.cpu.threads.engine import CoroutineExecutable, transform
from anymetal.ir import parse
from anymetal.msl import clang
from anymetal.nouns import Argument, Position, Prepared, Program
from anymetal.passes.debug_info import DebugInfo, Spot, strip_metadata
from anymetal.passes.instrument import Instrument
from anymetal.passes.invariant import mark_loads_through
from anymetal.passes.mark import inline_everything, mark
from anymetal.passes.provenance import Root
from anymetal.store.cache import default_store, digest_of

_SHADOW = Path(__file__).parent / "shadow"
_SYMBOLS = (
    "am_check_read",
    "am_check_write",
    "am_check_slowly",
    "am_check_array_slowly",
    "am_check_table_slowly",
    "am_check_taken_slowly",
    "am_check_event",
    "am_check_here",
    "am_check_enter",
)
_STATE_BYTES = ctypes.sizeof(records.Checks)
_start_lock = threading.Lock()


@functools.cache
def _runtime() -> Runtime:
    records.HEADER.check()
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
    """The checks as IR. What they read of the launch's state changes only while threads stand at a
    barrier, outside the kernel's code: loops need not read it again at each access."""
    store = default_store()
    sources = sorted(path for path in _SHADOW.iterdir() if path.is_file())
    key = digest_of(clang.toolchain_key(), *(path.read_bytes() for path in sources))
    entry = store.get("checks", key)
    if entry is not None:
        return entry.payload.decode()
    module = parse(clang.compile_support(_SHADOW / "fast.cpp"))
    mark_loads_through(module, "%checks")
    store.put("checks", key, {}, str(module).encode())
    return str(module)


@dataclass(frozen=True)
class Excerpt:
    """A place in the author's text with the line that stands there."""

    position: Position | None = None
    text: str = ""


@dataclass(frozen=True)
class CheckedSite:
    """What a site number in a finding stands for."""

    place: Excerpt
    element: int
    align: int
    use: int
    root: Root
    what: str


@dataclass(frozen=True)
class SuspendSite:
    """A barrier or collective: the word given to am_suspend, and where it is written."""

    what: int
    place: Excerpt


@dataclass(frozen=True)
class Touched:
    """Memory the kernel touches: the smallest element, and whether it is written."""

    root: Root
    smallest: int
    written: bool


@dataclass(frozen=True)
class Variable:
    """A threadgroup variable: its name and its place in the threadgroup's memory."""

    name: str
    slot: int
    offset: int
    size: int


@dataclass(frozen=True)
class CheckedProgram:
    """One kernel, instrumented: all that a checked launch needs besides the code itself."""

    name: str
    sites: tuple[CheckedSite, ...]
    suspends: tuple[SuspendSite, ...]
    touched: tuple[Touched, ...]
    variables: tuple[Variable, ...]
    parameters: dict[str, Excerpt]
    kernel: Excerpt
    executable: CoroutineExecutable

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.executable.arguments

    def smallest(self, root: Root) -> int:
        """The smallest element touched through a root, 8 where nothing is."""
        return min((t.smallest for t in self.touched if t.root == root), default=8)

    def writes(self, root: Root) -> bool:
        return any(t.written for t in self.touched if t.root == root)

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


def compile_checked(
    prepared: Prepared, program: Program, *, numbers: bool, level: int
) -> CheckedProgram:
    """Instruments a program. `numbers` adds the search for the first NaN or infinity."""
    raw = parse(program.ir)
    mark(raw, clang.INPUT_NAME, numbers=numbers)
    inline_everything(raw)
    module = parse(jit.inlined(str(raw)))
    places = _Places(prepared, program, DebugInfo(module))
    read_only = {a.index for a in program.arguments if a.is_const and a.index is not None}
    instrumented = Instrument(module, clang.INPUT_NAME, read_only, _STATE_BYTES).run()
    metadata, sites, layout = transform(module, program)
    suspends = [SuspendSite(s.what, places.excerpt(places.info.spots(s.location))) for s in sites]
    strip_metadata(module)
    runtime = checked_runtime()
    payload = jit.object_code(str(module), level, linked=_fast_checks())
    entry = prepared.entry_points[program.name]
    names = {v.slot: v.name for v in program.threadgroup_variables}
    return CheckedProgram(
        name=program.name,
        sites=tuple(
            CheckedSite(places.excerpt(s.spots), s.element, s.align, s.use, s.root, s.what)
            for s in instrumented.sites
        ),
        suspends=(SuspendSite(0, Excerpt()), *suspends),
        touched=tuple(
            Touched(root, smallest, root in instrumented.written_to)
            for root, smallest in instrumented.smallest.items()
        ),
        variables=tuple(
            Variable(names.get(slot, f"variable {slot}"), slot, *layout[slot])
            for slot in instrumented.static_slots
        ),
        parameters={p.name: places.at(p.position) for p in entry.parameters},
        kernel=places.at(entry.position),
        executable=CoroutineExecutable(payload, metadata, runtime),
    )


class _Places:
    """From LLVM's places to the author's."""

    def __init__(self, prepared: Prepared, program: Program, info: DebugInfo) -> None:
        self.info = info
        self._map = prepared.source_map
        self._first_line = program.first_line

    def at(self, position: Position | None) -> Excerpt:
        text = self._map.excerpt(position) if position else None
        return Excerpt(position, (text or "").strip())

    def excerpt(self, spots: tuple[Spot, ...] | list[Spot]) -> Excerpt:
        """The innermost place that is the author's: our own headers are not."""
        for spot in spots:
            if spot.file == clang.INPUT_NAME:
                position = self._map.position(spot.line - self._first_line + 1, spot.column)
                if position is not None:
                    return self.at(position)
        return Excerpt()


def to_note(checked: CheckedProgram) -> dict[str, Any]:
    """What a cache keeps of a checked program besides its code."""
    return {
        "name": checked.name,
        "sites": [asdict(site) for site in checked.sites],
        "suspends": [asdict(site) for site in checked.suspends],
        "touched": [asdict(touched) for touched in checked.touched],
        "variables": [asdict(variable) for variable in checked.variables],
        "parameters": {name: asdict(place) for name, place in checked.parameters.items()},
        "kernel": asdict(checked.kernel),
        "metadata": checked.executable.metadata,
    }


def from_note(note: dict[str, Any], payload: bytes) -> CheckedProgram:
    """The checked program that `to_note` was made of."""
    return CheckedProgram(
        name=note["name"],
        sites=tuple(
            CheckedSite(**{**row, "place": _excerpt(row["place"]), "root": Root(**row["root"])})
            for row in note["sites"]
        ),
        suspends=tuple(
            SuspendSite(row["what"], _excerpt(row["place"])) for row in note["suspends"]
        ),
        touched=tuple(Touched(**{**row, "root": Root(**row["root"])}) for row in note["touched"]),
        variables=tuple(Variable(**row) for row in note["variables"]),
        parameters={name: _excerpt(row) for name, row in note["parameters"].items()},
        kernel=_excerpt(note["kernel"]),
        executable=CoroutineExecutable(payload, note["metadata"], checked_runtime()),
    )


def _excerpt(row: dict[str, Any]) -> Excerpt:
    position = row["position"]
    return Excerpt(Position(**position) if position else None, row["text"])
