"""A Source goes in; the names of its kernels and their executables come out. There is no other way.

Two levels are kept on disk. The outline of a source (names, function constants, warnings, the files
it included with their digests) says without starting a compiler that the source compiles. An
executable is kept for each kernel, set of function constants, engine and instrumentation. Before
them a bundle is asked, where one has the source: then nothing is compiled, and no compiler needed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from anymetal.engines import bundles, choose, registry
from anymetal.engines.apart import is_large, run_apart
from anymetal.engines.choose import Choice
from anymetal.engines.collector import collector_paused
from anymetal.engines.contract import PLAIN, Compiled, E, Engine, Instrumentation
from anymetal.errors import BundleError
from anymetal.nouns import (
    ConstantValue,
    FunctionConstant,
    Outline,
    Position,
    Program,
    Source,
    Target,
)
from anymetal.store.bundle import Bundle
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint, unchanged

# Executables alive in this process: the same source compiled twice gives the same code.
_alive: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()


class Compiler:
    """Compiles the kernels of one source, once each.

    `handed_over` is the call of Python that a source without a file came from.
    """

    def __init__(self, source: Source, handed_over: Position | None = None) -> None:
        self.source = source
        self.handed_over = handed_over
        self._frontend = registry.FRONTENDS[type(source)]
        self._lock = threading.RLock()
        self._bundles = bundles.bundles_of(source)
        if self._bundles:
            first = self._bundles[0]
            self.outline = _outline(first.outlines[bundles.source_key(source)])
        else:
            self.outline = self._make_outline()
        self.cuda_engine = _cuda_engine(self._bundles)
        self.only_cuda = _only_cuda(self._bundles)

    @functools.cached_property
    def key(self) -> str:
        """All that decides about code, but the kernel and its constants."""
        outline = self._make_outline() if self._bundles else self.outline
        digests = (digest for _, digest in outline.dependencies)
        return digest_of(_text_key(self.source), *digests)

    def constants_of(self, kernel: str) -> tuple[FunctionConstant, ...]:
        """The function constants that a kernel may be given."""
        own = self._frontend.constants(self.source, kernel)
        return self.outline.constants if own is None else own

    def text_of(self, kernel: str) -> str:
        """The text that places in a kernel refer to."""
        return self._frontend.text(self.source, kernel)

    def program(self, kernel: str, constants: Mapping[str, ConstantValue]) -> Program:
        """One kernel before any engine has seen it, for the first of them."""
        target = choose.checking_target()
        return self._frontend.program(self.source, kernel, constants, target, optimise=True)

    def compile(
        self,
        kernel: str,
        constants: Mapping[str, ConstantValue],
        instrumentation: Instrumentation[E],
        engine: str = "",
    ) -> E:
        """The executable of one kernel for one set of function constants.

        `engine` is the name of one; left out, the setting decides.
        """
        chosen = choose.choice(instrumentation, engine)
        if self._bundles:
            kept = self._from_bundles(kernel, constants, instrumentation, chosen)
            if kept is not None:
                return kept
        values = json.dumps(sorted((name, repr(value)) for name, value in constants.items()))
        kind, more = instrumentation.name, instrumentation.key
        quoted = self.source.name if instrumentation.quotes else ""
        key = digest_of(self.key, quoted, kernel, values, chosen.name, kind, more)
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

    def _from_bundles(
        self,
        kernel: str,
        constants: Mapping[str, ConstantValue],
        instrumentation: Instrumentation[E],
        chosen: Choice,
    ) -> E | None:
        """None where no bundle has the code and a compiler can make it."""
        source = bundles.source_key(self.source)
        key = bundles.executable_key(source, kernel, constants, f"bundled {chosen.name}")
        with self._lock:
            found: E | None = None
            if instrumentation.name == PLAIN.name:
                found = _alive.get(key)  # type: ignore[assignment]
                if found is None:
                    found = _from_bundles(
                        self._bundles, source, kernel, constants, instrumentation, chosen
                    )
            if found is not None:
                _alive[key] = found
            elif not compiler_is_here():
                raise _missing(self._bundles, kernel, constants, instrumentation, chosen)
            return found

    def _build(
        self,
        kernel: str,
        constants: Mapping[str, ConstantValue],
        instrumentation: Instrumentation[E],
        chosen: Choice,
    ) -> E:
        @functools.cache
        def program(target: Target) -> Program:
            return self._frontend.program(
                *(self.source, kernel, constants, target),
                optimise=instrumentation.optimise,
                lines=instrumentation.quotes,
            )

        def build(engine: Engine, patient: bool) -> E:
            made = program(engine.target)
            if not is_large(made.ir):
                return instrumentation.compile(made, engine, patient=patient)
            what = f"compiling kernel '{kernel}' ({len(made.ir) >> 10} KiB of LLVM IR)"
            payload, metadata = run_apart(
                what, compile_kept, made, instrumentation, engine.name, patient
            )
            return instrumentation.load(payload, metadata, engine)

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


def compile_kept(
    program: Program, instrumentation: Instrumentation[Any], engine: str, patient: bool
) -> tuple[bytes, dict[str, Any]]:
    """What the store keeps of a compiled kernel."""
    made = instrumentation.compile(program, registry.engine_called(engine), patient=patient)
    return made.payload, made.metadata


class BundledCompiler:
    """The kernels of all sources of a bundle, by their names; it has the code of all it knows."""

    def __init__(self, bundle: Bundle) -> None:
        self.source = Source("", name=f"<bundle for {bundle.target}>")
        self._bundles = (bundle,)
        self._sources: dict[str, str] = {}
        outlines = []
        for key, note in bundle.outlines.items():
            outlines.append(_outline(note))
            self._sources.update((kernel, key) for kernel in outlines[-1].kernels)
        constants = {one.name: one for outline in outlines for one in outline.constants}
        self.outline = Outline(tuple(self._sources), tuple(constants.values()), (), ())
        self.cuda_engine = _cuda_engine(self._bundles)
        self.only_cuda = bool(self.cuda_engine)

    def constants_of(self, kernel: str) -> tuple[FunctionConstant, ...]:
        """The function constants that a kernel may be given."""
        return self.outline.constants

    def text_of(self, kernel: str) -> str:
        """A bundle has code and no text."""
        return ""

    def compile(
        self,
        kernel: str,
        constants: Mapping[str, ConstantValue],
        instrumentation: Instrumentation[E],
        engine: str = "",
    ) -> E:
        """The executable of one kernel for one set of function constants."""
        chosen = choose.choice(instrumentation, engine or self.cuda_engine)
        found: E | None = None
        if instrumentation.name == PLAIN.name:
            source = self._sources[kernel]
            found = _from_bundles(self._bundles, source, kernel, constants, instrumentation, chosen)
        if found is None:
            raise _missing(self._bundles, kernel, constants, instrumentation, chosen)
        return found


AnyCompiler = Compiler | BundledCompiler


def _cuda_engine(found: Iterable[Bundle]) -> str:
    """The one engine that the bundles have code of for `cuda` devices; empty without any."""
    names = [engine.name for engine in registry.CUDA_ENGINES.values()]
    return next((bundle.target for bundle in found if bundle.target in names), "")


def _only_cuda(found: Sequence[Bundle]) -> bool:
    return bool(found) and all(_cuda_engine((bundle,)) for bundle in found)


def compiler_is_here() -> bool:
    """Whether this machine can compile, or has what bundles have alone."""
    with contextlib.suppress(ModuleNotFoundError):
        return all(importlib.util.find_spec(name) for name in ("ziglang", "llvmlite"))
    return False


def _from_bundles(
    found: Iterable[Bundle],
    source: str,
    kernel: str,
    constants: Mapping[str, ConstantValue],
    instrumentation: Instrumentation[E],
    chosen: Choice,
) -> E | None:
    kept = bundles.executable_in(found, source, kernel, constants, chosen.engines)
    if kept is None:
        return None
    entry, engine = kept
    return instrumentation.load(entry.payload, entry.note, engine)


def _missing(
    found: Iterable[Bundle],
    kernel: str,
    constants: Mapping[str, ConstantValue],
    instrumentation: Instrumentation[Any],
    chosen: Choice,
) -> BundleError:
    if instrumentation.name != PLAIN.name:
        return BundleError(
            f"kernel '{kernel}' comes from a bundle, which has no {instrumentation.name} code"
        )
    values = "".join(f", {name}={value}" for name, value in constants.items())
    engines = " or ".join(engine.name for engine in chosen.engines)
    targets = " and ".join(bundle.target for bundle in found)
    return BundleError(
        f"the bundle for {targets} has no code of kernel '{kernel}'{values} for the {engines}"
        " engine: `anymetal compile` bundles it, given its file or --operators, and for its"
        " function constants --constant NAME=VALUE"
    )


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
    return digest_of(_text_key(source), source.name, str(source.strict))


def _text_key(source: Source) -> str:
    """All that decides about code. The source's name stands in messages alone, but for __FILE__."""
    options = [
        type(source).__name__,
        source.name if "__FILE__" in source.text else "",
        [str(path) for path in source.include_dirs],
        source.defines,
        source.fast_math,
        source.language,
    ]
    parts = fingerprint("tools", "processor", "compiler")
    return digest_of(parts, source.text, json.dumps(options))
