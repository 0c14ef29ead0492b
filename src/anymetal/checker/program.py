"""The checker's instrumentation: checks at every access, and the table of the access sites."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anymetal.checker import records
from anymetal.checker.order import ProgramOrder, Reached, loops_of, order_data, order_from
from anymetal.checker.silence import comments_above
from anymetal.engines.contract import Engine, Executable
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.lowering import refuse_large_frames
from anymetal.engines.cpu.runtime import Runtime, start_runtime
from anymetal.engines.cpu.runtime import runtime as plain_runtime
from anymetal.engines.cpu.target import HOST
from anymetal.engines.cpu.threads.engine import Layout, Listener, ThreadEngine, ThreadExecutable
from anymetal.ir import parse
from anymetal.machine.layout import WAIT_BITS, Wait, waits_for
from anymetal.machine.shadow import LARGEST_CELL, Access
from anymetal.msl import clang
from anymetal.msl.compile import refuse_unset_constants
from anymetal.msl.contract import contract
from anymetal.nouns import Argument, Position, Program
from anymetal.passes.check.debug_info import DebugInfo, Spot
from anymetal.passes.check.instrument import Instrument
from anymetal.passes.check.mark import inline_everything, mark
from anymetal.passes.check.order import Order
from anymetal.passes.check.sites import Instrumented
from anymetal.passes.lower.coroutine import Site
from anymetal.passes.lower.invariant import mark_loads_through
from anymetal.passes.lower.machine import THREAD_MAIN
from anymetal.passes.provenance import Root
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint

_SHADOW = Path(__file__).parent / "shadow"
_SYMBOLS = (
    "am_check_read",
    "am_check_write",
    "am_check_slowly",
    "am_check_elsewhere",
    "am_check_array_slowly",
    "am_check_table_slowly",
    "am_check_taken_slowly",
    "am_check_event",
    "am_check_fence",
    "am_check_index_slowly",
    "am_check_matrix",
    "am_check_here",
    "am_check_enter",
    "am_check_return",
    "am_check_shuffle",
)
# LLVM's time grows with the square of the checks but for level 0: 1,000 accesses take 7 s at level
# 2, and 0.6 s at level 0.
_MANY_SITES = 500
_STATE_BYTES = ctypes.sizeof(records.Checks)
_start_lock = threading.Lock()


@functools.cache
def _runtime() -> Runtime:
    records.HEADER.check()
    plain_runtime()  # provides what all kernels call: os_log, the rounding of bfloat
    runtime = start_runtime(include_dirs=(_SHADOW,))
    for symbol in _SYMBOLS:
        jit.provide_symbol(symbol, runtime.address(symbol))
    return runtime


def checked_runtime() -> Runtime:
    """The engine's runtime with the checker as its listener."""
    with _start_lock:
        return _runtime()


@functools.cache
def _fast_checks(with_fences: bool) -> str:
    """The checks as IR. What they read of the launch's state changes only while threads stand at a
    barrier, outside the kernel's code, or at a fence: without fences loops need not read it again
    at each access."""
    store = default_store()
    stamp = fingerprint("tools", "processor", clang.INCLUDE_DIR, *HOST.include_dirs, _SHADOW)
    key = digest_of(stamp, str(with_fences))
    entry = store.get("checks", key)
    if entry is not None:
        return entry.payload.decode()
    module = parse(clang.compile_support(_SHADOW / "fast.cpp", HOST))
    if not with_fences:
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
    """Memory the kernel touches: the smallest element, the unit that every access is a multiple of,
    whether it is written, whether more is done with integers there than to move their bits, and
    whether it is an input as well: read, or updated by atomics."""

    root: Root
    smallest: int
    unit: int
    written: bool
    computed: bool
    is_input: bool


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
    buffers: tuple[int, ...]  # that the author has declared, also those a constant leaves out
    kernel: Excerpt
    comments: dict[str, str]  # the comment lines above all these places
    has_fences: bool
    in_any_order: bool  # threadgroups may run beside each other: nobody sees in which order
    largest: int  # bytes that one access touches
    matrix_site: int  # of the first load or store of a simdgroup matrix, in `suspends`
    order: ProgramOrder
    executable: Executable

    @property
    def payload(self) -> bytes:
        return self.executable.payload

    @property
    def metadata(self) -> dict[str, Any]:
        return self.executable.metadata

    def comment(self, position: Position) -> str | None:
        """The author's line at a position, if it is a comment above one of the places."""
        return self.comments.get(_line(position))

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.executable.arguments

    def smallest(self, root: Root) -> int:
        """The smallest element touched through a root, 8 where nothing is."""
        return min((t.smallest for t in self.touched if t.root == root), default=8)

    def unit(self, root: Root) -> int:
        """What every access through a root starts and ends at a multiple of."""
        units = (t.unit for t in self.touched if t.root == root)
        return min(units, default=LARGEST_CELL)

    def writes(self, root: Root) -> bool:
        return any(t.written for t in self.touched if t.root == root)

    def computes(self, root: Root) -> bool:
        return any(t.computed for t in self.touched if t.root == root)

    def is_input(self, root: Root) -> bool:
        return any(t.is_input for t in self.touched if t.root == root)

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


@dataclass(frozen=True)
class Checked:
    """Checks in the code of threads. `numbers` adds the search for the first NaN or infinity."""

    numbers: bool
    level: int

    name = "checked"
    engine = ThreadEngine.name
    optimise = False
    quotes = True

    @property
    def key(self) -> str:
        return f"{self.numbers} {self.level}"

    def compile(self, program: Program, engine: Engine, *, patient: bool) -> CheckedProgram:
        assert isinstance(engine, ThreadEngine)
        raw = parse(program.ir)
        padding = program.padding
        mark(raw, clang.INPUT_NAME, _returns(program), padding=padding, numbers=self.numbers)
        inline_everything(raw)
        inlined = jit.inlined(str(raw))
        module = parse(inlined)
        contract(module)
        refuse_unset_constants(program, module)
        refuse_large_frames(module, program)  # their shadows would be as large
        info = DebugInfo(module)
        places, order = _Places(program, info), Order(module.function(THREAD_MAIN), info)
        read_only = {a.index for a in program.arguments if a.is_const and a.index is not None}
        instrumented = Instrument(module, clang.INPUT_NAME, read_only, _STATE_BYTES, padding).run()
        checks = functools.partial(_fast_checks, instrumented.has_fences)
        level = 0 if len(instrumented.sites) > _MANY_SITES else self.level
        listener = Listener(checked_runtime, checks, level)
        executable, layout = engine.compile_listened(module, program, listener)
        note = _note(program, places, instrumented, layout)
        note["order"] = order_data(_program_order(order, instrumented, places))
        executable.metadata["checks"] = note
        return _program(executable)

    def load(self, payload: bytes, metadata: dict[str, Any], engine: Engine) -> CheckedProgram:
        return _program(ThreadExecutable(payload, metadata, checked_runtime()))


def _returns(program: Program) -> Callable[[Spot], bool]:
    """Whether the author's text has a return statement at a place."""

    def is_return(spot: Spot) -> bool:
        if spot.file != clang.INPUT_NAME:
            return False
        position = program.source_map.position(spot.line - program.first_line + 1, spot.column)
        text = program.source_map.excerpt(position) if position is not None else None
        return (text or "")[position.column - 1 if position else 0 :].startswith("return")

    return is_return


def _note(
    program: Program, places: _Places, instrumented: Instrumented, layout: Layout
) -> dict[str, Any]:
    """What a checked launch needs besides the code, as the store keeps it."""
    names = {v.slot: v.name for v in program.threadgroup_variables}
    stops = [_suspend_site(places, s) for s in layout.sites]
    inputs = {site.root for site in instrumented.sites if site.kind != Access.WRITE}
    matrices = [
        SuspendSite(Wait.COLLECTIVE, places.excerpt(spots)) for spots in instrumented.matrices
    ]
    parts: dict[str, list[Any]] = {
        "sites": [
            CheckedSite(places.excerpt(s.spots), s.element, s.align, s.use, s.root, s.what)
            for s in instrumented.sites
        ],
        "suspends": [SuspendSite(0, Excerpt()), *stops, *matrices],
        "touched": [
            Touched(
                root,
                smallest,
                instrumented.units[root],
                root in instrumented.written_to,
                root in instrumented.computed,
                root in inputs,
            )
            for root, smallest in instrumented.smallest.items()
        ],
        "variables": [
            Variable(names.get(slot, f"variable {slot}"), slot, *layout.variables[slot])
            for slot in instrumented.static_slots
        ],
    }
    return {
        **{part: [asdict(row) for row in rows] for part, rows in parts.items()},
        "parameters": {p.name: asdict(places.at(p.position)) for p in program.entry.parameters},
        "buffers": [p.index for p in program.entry.parameters if p.role == "buffer"],
        "kernel": asdict(places.at(program.entry.position)),
        "comments": places.comments,
        "has_fences": instrumented.has_fences,
        "in_any_order": _in_any_order(instrumented),
        "largest": instrumented.largest,
        "matrix_site": 1 + len(stops),
    }


def _in_any_order(instrumented: Instrumented) -> bool:
    """Whether a kernel without races does the same in whatever order its threadgroups run: atomics
    and fences let them meet. Functions that were not inlined know of one thread at a time."""
    meeting = (
        site.kind & Access.ATOMIC and site.root.origin not in ("static", "dynamic")
        for site in instrumented.sites
    )
    return not (instrumented.has_fences or instrumented.has_calls or any(meeting))


def _suspend_site(places: _Places, site: Site) -> SuspendSite:
    spots = places.info.spots(site.location)
    is_collective = waits_for(site.what) == Wait.COLLECTIVE
    of_quads = is_collective and any(spot.file.endswith("metal_quadgroup") for spot in spots)
    word = site.what | (records.OF_QUADS << WAIT_BITS if of_quads else 0)
    return SuspendSite(word, places.excerpt(spots))


def _program_order(order: Order, instrumented: Instrumented, places: _Places) -> ProgramOrder:
    """Where the accesses are that may race: those of memory that threads share."""
    shared = {
        number: (site, point)
        for number, site in enumerate(instrumented.sites)
        if not site.what and site.root.origin not in ("array", "global")
        for point in (order.point(site.instruction),)
        if point is not None
    }
    loads = {id(site.instruction): number for number, (site, _) in shared.items()}
    return ProgramOrder(
        order.flow,
        loops_of(order.flow.loops, places.chain),
        {
            number: Reached(
                point,
                places.chain(site.spots),
                loads.get(id(order.updated_load(site.instruction))),
            )
            for number, (site, point) in shared.items()
        },
    )


class _Places:
    """From LLVM's places to the author's; collects the comments above them on the way."""

    def __init__(self, program: Program, info: DebugInfo) -> None:
        self.info = info
        self.comments: dict[str, str] = {}
        self._map = program.source_map
        self._first_line = program.first_line

    def at(self, position: Position | None) -> Excerpt:
        if position is None:
            return Excerpt()
        above = comments_above(position, self._map.excerpt)
        self.comments |= {_line(place): text for place, text in above}
        return Excerpt(position, (self._map.excerpt(position) or "").rstrip())

    def chain(self, spots: tuple[Spot, ...]) -> tuple[Position, ...]:
        """All places that are the author's, innermost first."""
        own = (spot for spot in spots if spot.file == clang.INPUT_NAME)
        found = (self._map.position(s.line - self._first_line + 1, s.column) for s in own)
        return tuple(place for place in found if place is not None)

    def excerpt(self, spots: tuple[Spot, ...] | list[Spot]) -> Excerpt:
        """The innermost place that is the author's: our own headers are not."""
        for spot in spots:
            if spot.file == clang.INPUT_NAME:
                position = self._map.position(spot.line - self._first_line + 1, spot.column)
                if position is not None:
                    return self.at(position)
        return Excerpt()


def _program(executable: ThreadExecutable) -> CheckedProgram:
    """A checked program of its executable and of what `_note` wrote down in its metadata."""
    note = executable.metadata["checks"]
    return CheckedProgram(
        name=executable.name,
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
        buffers=tuple(note["buffers"]),
        kernel=_excerpt(note["kernel"]),
        comments=note["comments"],
        has_fences=note["has_fences"],
        in_any_order=note["in_any_order"],
        largest=note["largest"],
        matrix_site=note["matrix_site"],
        order=order_from(note["order"]),
        executable=executable,
    )


def _line(position: Position) -> str:
    return f"{position.file}:{position.line}"


def _excerpt(row: dict[str, Any]) -> Excerpt:
    position = row["position"]
    return Excerpt(Position(**position) if position else None, row["text"])
