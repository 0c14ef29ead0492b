"""A Source goes in; the names of its kernels and their executables come out.

Two levels are kept on disk. The outline of a source (names, function constants, the files it
included with their digests) says without starting a compiler that the source compiles. An
executable is kept for each kernel and each set of function constants.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymetal import settings
from anymetal.engines.cpu.runtime import start_early
from anymetal.engines.cpu.simdgroups import NotVectorisable, RegionsEngine
from anymetal.engines.cpu.threads import CoroutineEngine, CoroutineExecutable
from anymetal.errors import EngineError
from anymetal.msl.check import check_all
from anymetal.msl.clang import precompile_early
from anymetal.msl.compile import compile_program
from anymetal.msl.prepare import prepare
from anymetal.nouns import Position, Prepared, Program, Scalar, Source
from anymetal.store.cache import default_store, digest_of

if TYPE_CHECKING:
    from anymetal.checker.program import CheckedProgram

# A source that names more kernels than this is checked without its template instances, which are
# then checked when they are asked for: instantiating all of a large library takes a minute.
CHECKED_AT_ONCE = 64

COROUTINE = CoroutineEngine()
REGIONS = RegionsEngine()

_PACKAGE = Path(__file__).parent.parent
# The rooms whose code decides what an executable looks like.
_COMPILER_ROOMS = ("msl", "passes", "engines", "checker", "store")

# Executables alive in this process: the same source compiled twice gives the same code.
_alive: weakref.WeakValueDictionary[str, CoroutineExecutable] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Outline:
    """What is known of a source without its prepared text."""

    key: str
    kernels: tuple[str, ...]
    constants: tuple[tuple[str, int, str], ...]


class Workshop:
    """Compiles the kernels of one source, once each."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._prepared: Prepared | None = None
        self._checked: dict[str, CheckedProgram] = {}
        self._lock = threading.RLock()
        self.outline = self._make_outline()

    def compile(
        self, kernel: str, constants: Mapping[str, Scalar], engine: str = ""
    ) -> CoroutineExecutable:
        """The executable of one kernel for one set of function constants."""
        values = json.dumps(sorted((name, repr(value)) for name, value in constants.items()))
        engine = engine or settings.ENGINE.choice("auto", "regions", "coroutine")
        key = digest_of(self.outline.key, kernel, values, engine)
        with self._lock:
            executable = _alive.get(key) or _from_store(key)
            if executable is None:
                named: dict[int | str, Scalar] = {name: constants[name] for name in constants}
                program = compile_program(self.prepared(), kernel, named)
                executable = _compile(program, engine)
                default_store().put("executable", key, executable.metadata, executable.payload)
            _alive[key] = executable
            return executable

    def reference(
        self, kernel: str, constants: Mapping[str, Scalar], why: NotVectorisable
    ) -> CoroutineExecutable:
        """What runs where vector code exists, but not for the shape of a launch."""
        if settings.ENGINE.text() == REGIONS.name:
            raise _excluded(kernel, why) from None
        return self.compile(kernel, constants, COROUTINE.name)

    def compile_checked(
        self, kernel: str, constants: Mapping[str, Scalar], numbers: bool
    ) -> CheckedProgram:
        """The kernel instrumented for the checker, kept as long as this source is."""
        from anymetal.checker import program  # noqa: PLC0415  (only when checking)

        level = int(settings.CHECK_LEVEL.number())
        values = json.dumps(sorted((name, repr(value)) for name, value in constants.items()))
        key = digest_of("checked", self.outline.key, kernel, values, f"{numbers} {level}")
        with self._lock:
            if key not in self._checked:
                entry = default_store().get("checked", key)
                self._checked[key] = (
                    program.from_note(entry.note, entry.payload)
                    if entry
                    else self._instrument(key, kernel, constants, numbers, level)
                )
            return self._checked[key]

    def _instrument(
        self, key: str, kernel: str, constants: Mapping[str, Scalar], numbers: bool, level: int
    ) -> CheckedProgram:
        from anymetal.checker import program  # noqa: PLC0415

        named: dict[int | str, Scalar] = {name: constants[name] for name in constants}
        plain = compile_program(self.prepared(), kernel, named, optimise=False)
        checked = program.compile_checked(self.prepared(), plain, numbers=numbers, level=level)
        default_store().put("checked", key, program.to_note(checked), checked.executable.payload)
        return checked

    def excerpt(self, position: Position) -> str | None:
        """The author's line at a position."""
        return self.prepared().source_map.excerpt(position)

    def prepared(self) -> Prepared:
        """The rewritten source; made again when only its outline came from the store."""
        with self._lock:
            if self._prepared is None:
                self._prepared = prepare(self._source)
            return self._prepared

    def _make_outline(self) -> Outline:
        source_key = _source_key(self._source)
        entry = default_store().get("outline", source_key)
        if entry is not None and _unchanged(entry.note["dependencies"]):
            return _outline(source_key, entry.note)
        # Headers and runtime are built once a machine, and take longer than all the rest.
        start_early()
        precompile_early(self._source.fast_math)
        prepared = self.prepared()
        check_all(prepared, instantiate=len(prepared.entry_points) <= CHECKED_AT_ONCE)
        note = {
            "kernels": list(prepared.entry_points),
            "constants": [
                [constant.name, constant.index, constant.type]
                for constant in prepared.function_constants.values()
            ],
            "dependencies": [list(pair) for pair in prepared.dependencies],
        }
        default_store().put("outline", source_key, note)
        return _outline(source_key, note)


def _compile(program: Program, engine: str) -> CoroutineExecutable:
    if engine == "coroutine":
        return COROUTINE.compile(program)
    try:
        return REGIONS.compile(program, patient=engine == "regions")
    except NotVectorisable as error:
        if engine == "regions":
            raise _excluded(program.name, error) from None
        executable = COROUTINE.compile(program)
        executable.metadata["why"] = str(error)
        return executable


def _excluded(kernel: str, why: NotVectorisable) -> EngineError:
    return EngineError(
        f"kernel '{kernel}' cannot run on the regions engine: {why}; "
        f"with {settings.ENGINE.variable}=auto it runs on the coroutine engine"
    )


def _from_store(key: str) -> CoroutineExecutable | None:
    entry = default_store().get("executable", key)
    if entry is None:
        return None
    engine = REGIONS if entry.note["engine"] == REGIONS.name else COROUTINE
    return engine.load(entry.payload, entry.note)


def _outline(source_key: str, note: dict[str, Any]) -> Outline:
    digests = [digest for _, digest in note["dependencies"]]
    return Outline(
        key=digest_of(source_key, *digests),
        kernels=tuple(note["kernels"]),
        constants=tuple((name, index, kind) for name, index, kind in note["constants"]),
    )


def _source_key(source: Source) -> str:
    options = [
        source.name,
        [str(path) for path in source.include_dirs],
        source.defines,
        source.fast_math,
    ]
    return digest_of(toolchain(), source.text, json.dumps(options))


def _unchanged(dependencies: Iterable[tuple[str, str]]) -> bool:
    """Whether every file the source included still has the contents it was compiled with."""
    return all(_file_digest(path) == digest for path, digest in dependencies)


def _file_digest(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


@functools.cache
def toolchain() -> str:
    """A digest that changes with the compiler, LLVM, this package and the processor."""
    spec = find_spec("ziglang")
    clang = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    rooms = [_PACKAGE / room for room in _COMPILER_ROOMS]
    return digest_of(
        COROUTINE.version,
        REGIONS.version,
        *(line for place in clang for line in _signature(place, depth=0)),
        *(line for place in rooms for line in _signature(place, depth=8)),
    )


def _signature(folder: Path, depth: int) -> list[str]:
    """Name, size and time of the files in a folder: quicker than reading them, and as telling."""
    lines = []
    for item in sorted(os.scandir(folder), key=lambda item: item.name):
        if item.is_dir():
            if depth > 0 and item.name != "__pycache__":
                lines += [f"{item.name}/{line}" for line in _signature(Path(item.path), depth - 1)]
        else:
            status = item.stat()
            lines.append(f"{item.name} {status.st_size} {status.st_mtime_ns}")
    return lines
