"""The bundles of this process, and which of their kernels a source has.

A source is known by its text, macros and fast math: not by where the package or the compiler is
installed, nor by the processor at hand.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from anymetal import settings
from anymetal.engines.contract import Engine
from anymetal.engines.cpu import bundled
from anymetal.nouns import ConstantValue, Source
from anymetal.store.bundle import Bundle, read_bundle
from anymetal.store.cache import Entry, digest_of
from anymetal.store.fingerprint import unchanged

_used: list[Bundle] = []
on_use: list[Callable[[], None]] = []
"""Called when a bundle has been added."""


def use(path: Path) -> Bundle:
    """From now on sources find their kernels in this bundle too."""
    bundle = read_bundle(path)
    _used.append(bundle)
    for tell in on_use:
        tell()
    return bundle


def every() -> tuple[Bundle, ...]:
    """The bundles of this process: those that were loaded, then those of the setting."""
    return (*_used, *_named(settings.BUNDLE.value()))


def source_key(source: Source) -> str:
    name = source.name if "__FILE__" in source.text else ""
    options = [name, source.defines, source.fast_math, source.language]
    return digest_of("source", source.text, json.dumps(options))


def executable_key(
    source: str, kernel: str, constants: Mapping[str, ConstantValue], engine: str
) -> str:
    values = json.dumps(sorted((name, repr(value)) for name, value in constants.items()))
    return digest_of("executable", source, kernel, values, engine)


def bundles_of(source: Source) -> tuple[Bundle, ...]:
    """The bundles that have a source, whose included files, if any, are as they were.

    Files that are not on this machine, torch's own headers of another installation say, count as
    they were when the bundle was written.
    """
    found = every()
    if not found:
        return ()
    key = source_key(source)
    return tuple(
        bundle
        for bundle in found
        if key in bundle.outlines and unchanged(_present(bundle.outlines[key]["dependencies"]))
    )


def _present(dependencies: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(path, digest) for path, digest in dependencies if Path(path).exists()]


@functools.lru_cache(maxsize=8)
def _named(paths: str) -> tuple[Bundle, ...]:
    return tuple(read_bundle(Path(path)) for path in paths.split(os.pathsep) if path)


def executable_in(
    bundles: Iterable[Bundle],
    source: str,
    kernel: str,
    constants: Mapping[str, ConstantValue],
    engines: Iterable[Engine],
) -> tuple[Entry, Engine] | None:
    """The code of a kernel for the first of the engines that a bundle has some for, and what
    takes it back."""
    for engine in engines:
        key = executable_key(source, kernel, constants, engine.name)
        for bundle in bundles:
            if key in bundle.executables:
                return bundle.executables[key], _taking_back(bundle, engine)
    return None


def _taking_back(bundle: Bundle, engine: Engine) -> Engine:
    runtime = bundle.executables.get(bundled.runtime_key(bundle.target))
    if runtime is None:
        return engine
    return bundled.BundledEngine(engine.name, bundled.started(runtime, bundle.target))
