"""Kernels for CPUs ahead of time: compiled to shared libraries here, run elsewhere without LLVM.

A kernel for the simdgroup engine has code for some shapes of threadgroups. A launch of another
shape runs the code that takes less for granted. The runtime travels in the bundle too, since a
machine without a compiler cannot build it.
"""

from __future__ import annotations

import platform
import sys
import threading
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from anymetal.engines.contract import Executable
from anymetal.engines.cpu import jit, layout
from anymetal.engines.cpu.runtime import Runtime, compile_runtime
from anymetal.engines.cpu.shared import SharedCode
from anymetal.engines.cpu.simdgroups.engine import (
    ANYHOW,
    Code,
    SimdgroupEngine,
    SimdgroupExecutable,
    write,
)
from anymetal.engines.cpu.target import current
from anymetal.engines.cpu.threads.engine import (
    OPTIMISATION,
    ThreadEngine,
    ThreadExecutable,
    transform,
)
from anymetal.errors import BundleError, EngineError, Unsuitable
from anymetal.ir import parse
from anymetal.machine import layout as machine
from anymetal.machine import processor
from anymetal.msl import clang
from anymetal.nouns import Program, Target
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.store.cache import Entry, digest_of

_PREFIX = "cpu-"
# Without a word on the launches to come: threadgroups of one row, whole and cut, and all others.
USUAL_SHAPES = frozenset((GroupShape(WIDTH, complete=True), GroupShape(WIDTH), ANYHOW))


def targets() -> dict[str, str]:
    """What kernels can be compiled for on this machine: the processor by the target's name."""
    if not sys.platform.startswith("linux"):
        return {}
    names = [processor.NATIVE, *(processor.LEVELS if processor.is_x86() else ())]
    portable = next(iter(processor.LEVELS)) if processor.is_x86() else processor.NATIVE
    return {"cpu": portable, **{f"{_PREFIX}{name}": name for name in names}}


def runtime_key(target: str) -> str:
    """Where the runtime is among the executables of a bundle."""
    return digest_of("runtime", target)


def runtime_entry() -> Entry:
    """The runtime for the processor that code is made for, and what it needs there."""
    note = {
        "system": _system(),
        "processor": sorted(processor.needed()),
        "layout": _layout(),
    }
    code = jit.object_code(compile_runtime(current()), level=2, shared=True)
    return Entry(note, zlib.compress(clang.link_shared(code)))


def entries(program: Program, shapes: Iterable[GroupShape]) -> dict[str, Entry]:
    """The code of a kernel by engine: what the first one cannot do, the reference does."""
    try:
        vectors, refused = _simdgroup_entry(program, shapes)
    except Unsuitable as error:
        return {ThreadEngine.name: _thread_entry(program, str(error))}
    found = {SimdgroupEngine.name: vectors}
    if refused is not None:
        found[ThreadEngine.name] = _thread_entry(program, str(refused))
    return found


def _simdgroup_entry(
    program: Program, shapes: Iterable[GroupShape]
) -> tuple[Entry, Unsuitable | None]:
    """A kernel's vector code for some shapes, and why others could not be done.

    Raises Unsuitable where none could.
    """
    ir, metadata = SimdgroupEngine().prepared(program, patient=False)
    rows: list[dict[str, Any]] = []
    libraries: list[bytes] = []
    refused: Unsuitable | None = None
    start = 0
    for shape in sorted(shapes, key=lambda one: (one.row, one.complete)):
        try:
            written = write(ir, shape, metadata["heaviest"])
        except Unsuitable as error:
            refused = error
            continue
        code, note = written.compiled(shared=True)
        libraries.append(zlib.compress(clang.link_shared(code)))
        place = {"start": start, "length": len(libraries[-1])}
        rows.append({**asdict(shape), **place, "frame_size": note["frame_size"]})
        start += len(libraries[-1])
    if not rows and refused is not None:
        raise refused
    metadata |= {"libraries": rows, "reason": ""}
    return Entry(metadata, b"".join(libraries)), refused


def _thread_entry(program: Program, reason: str) -> Entry:
    """A kernel's code for the reference engine."""
    module = parse(program.ir)
    metadata, _ = transform(module, program)
    code = jit.object_code(str(module), OPTIMISATION, shared=True)
    metadata["reason"] = reason
    return Entry(metadata, zlib.compress(clang.link_shared(code)))


@dataclass(frozen=True)
class BundledEngine:
    """Takes back what a bundle has for one of the CPU engines."""

    name: str
    runtime: Runtime

    @property
    def target(self) -> Target:
        return current()

    def compile(self, program: Program, *, patient: bool = False) -> Executable:
        raise EngineError(f"kernel '{program.name}': a bundle compiles nothing")

    def load(self, payload: bytes, metadata: dict[str, Any]) -> Executable:
        if "libraries" in metadata:
            return BundledSimdgroups(payload, metadata, self.runtime)
        code = SharedCode(zlib.decompress(payload))
        return ThreadExecutable(payload, metadata, self.runtime, code)

    def start_early(self) -> None:
        """Nothing is built."""


class BundledSimdgroups(SimdgroupExecutable):
    """A vectorised kernel with code for the shapes that a bundle has."""

    def _new_code(self, shape: GroupShape) -> Code | Unsuitable:
        rows = {GroupShape(row["row"], row["complete"]): row for row in self.metadata["libraries"]}
        fitting = (shape, GroupShape(shape.row), ANYHOW)
        row = next((rows[one] for one in fitting if one in rows), None)
        if row is None:
            return Unsuitable("the bundle has no vector code for this threadgroup")
        library = self.payload[row["start"] : row["start"] + row["length"]]
        return Code(SharedCode(zlib.decompress(library)), row["frame_size"])


_runtimes: dict[str, Runtime] = {}
_lock = threading.Lock()


def started(entry: Entry, target: str) -> Runtime:
    """The runtime of a bundle in this process; raises BundleError where it cannot run here."""
    _refuse_elsewhere(entry.note, target)
    key = digest_of(entry.payload)
    with _lock:
        if key not in _runtimes:
            _runtimes[key] = Runtime(SharedCode(zlib.decompress(entry.payload), for_all=True))
        return _runtimes[key]


def _refuse_elsewhere(note: dict[str, Any], target: str) -> None:
    again = f"write it again with `anymetal compile --target {target}` there"
    if note["system"] != _system():
        raise BundleError(
            f"a bundle for {target} on {note['system']}, and this is {_system()}: {again}"
        )
    if note["layout"] != _layout():
        raise BundleError(f"a bundle for {target} of another version of anymetal: {again}")
    here = processor.present()
    missing = sorted(set(note["processor"]) - here) if here is not None else []
    if missing:
        raise BundleError(
            f"a bundle for {target}, whose code needs what this processor does not have:"
            f" {', '.join(missing)}; compile with --target cpu"
        )


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


def _layout() -> str:
    """Changes with what Python and the runtime hand to each other."""
    return digest_of(machine.HEADER.text(), layout.HEADER.text())
