"""A Source goes in; the names of its kernels and their executables come out. There is no other way.

Two levels are kept on disk. The outline of a source (names, function constants, warnings, the files
it included with their digests) says without starting a compiler that the source compiles. An
executable is kept for each kernel, set of function constants, engine and instrumentation.
"""

from __future__ import annotations

import functools
import json
import threading
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from anymetal.engines import choose, registry
from anymetal.engines.choose import Choice
from anymetal.engines.collector import collector_paused
from anymetal.engines.contract import PLAIN, Compiled, E, Engine, Instrumentation
from anymetal.nouns import (
    FunctionConstant,
    Outline,
    Position,
    Program,
    Scalar,
    Source,
    Target,
)
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint, unchanged

# Executables alive in this process: the same source compiled twice gives the same code.
_alive: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()


class Compiler:
    """Compiles the kernels of one source, once each."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._frontend = registry.FRONTENDS[type(source)]
        self._lock = threading.RLock()
        self.outline = self._make_outline()
        self._key = digest_of(_text_key(source), *(d for _, d in self.outline.dependencies))

    def compile(
        self,
        kernel: str,
        constants: Mapping[str, Scalar],
        instrumentation: Instrumentation[E],
        engine: str = "",
    ) -> E:
        """The executable of one kernel for one set of function constants.

        `engine` is the name of one; left out, the setting decides.
        """
        chosen = choose.choice(instrumentation, engine)
        values = json.dumps(sorted((name, repr(value)) for name, value in constants.items()))
        kind, more = instrumentation.name, instrumentation.key
        quoted = self.source.name if instrumentation.quotes else ""
        key = digest_of(self._key, quoted, kernel, values, chosen.name, kind, more)
        with self._lock:
            # The key names the instrumentation, so what is found is of its kind.
            found: E | None = _alive.get(key)  # type: ignore[assignment]
            if found is None:
                found = _from_store(key, instrumentation)
                if found is None:
                    found = self._build(kernel, constants, instrumentation, chosen)
                    default_store().put(kind, key, found.metadata, found.payload)
                choose.log_fallback(kernel, chosen, found)
                _alive[key] = found
            return found

    def _build(
        self,
        kernel: str,
        constants: Mapping[str, Scalar],
        instrumentation: Instrumentation[E],
        chosen: Choice,
    ) -> E:
        @functools.cache
        def program(target: Target) -> Program:
            optimise = instrumentation.optimise
            return self._frontend.program(self.source, kernel, constants, target, optimise=optimise)

        def build(engine: Engine, patient: bool) -> E:
            return instrumentation.compile(program(engine.target), engine, patient=patient)

        with collector_paused():
            return choose.first_able(kernel, chosen, build)

    def _make_outline(self) -> Outline:
        key = _source_key(self.source)
        entry = default_store().get("outline", key)
        if entry is not None and unchanged(entry.note["dependencies"]):
            return _outline(entry.note)
        for engine in choose.choice(PLAIN).engines:
            engine.start_early()
        with collector_paused():
            outline = self._frontend.outline(self.source, choose.checking_target())
        default_store().put("outline", key, asdict(outline))
        return outline


def _from_store(key: str, instrumentation: Instrumentation[E]) -> E | None:
    entry = default_store().get(instrumentation.name, key)
    if entry is None:
        return None
    engine = registry.engine_called(entry.note["engine"])
    return instrumentation.load(entry.payload, entry.note, engine)


def _outline(note: dict[str, Any]) -> Outline:
    return Outline(
        kernels=tuple(note["kernels"]),
        constants=tuple(
            FunctionConstant(**{**row, "position": Position(**row["position"])})
            for row in note["constants"]
        ),
        dependencies=tuple((path, digest) for path, digest in note["dependencies"]),
        warnings=tuple(note["warnings"]),
    )


def _source_key(source: Source) -> str:
    return digest_of(_text_key(source), source.name)


def _text_key(source: Source) -> str:
    """All that decides about code. The source's name stands in messages alone, but for __FILE__."""
    options = [
        type(source).__name__,
        source.name if "__FILE__" in source.text else "",
        [str(path) for path in source.include_dirs],
        source.defines,
        source.fast_math,
    ]
    parts = fingerprint("tools", "processor", "compiler")
    return digest_of(parts, source.text, json.dumps(options))
