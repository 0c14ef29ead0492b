"""The bundles of this process, and which of their kernels a source has.

A source is known by its text, macros and fast math: not by where the package or the compiler is
installed, nor by the processor at hand.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from anymetal import settings
from anymetal.errors import BundleError
from anymetal.nouns import Scalar, Source
from anymetal.store.bundle import Bundle, read_bundle
from anymetal.store.cache import Entry, digest_of
from anymetal.store.fingerprint import unchanged

_used: list[Bundle] = []


def use(path: Path) -> Bundle:
    """From now on sources find their kernels in this bundle too."""
    bundle = read_bundle(path)
    _used.append(bundle)
    return bundle


def source_key(source: Source) -> str:
    name = source.name if "__FILE__" in source.text else ""
    options = [name, source.defines, source.fast_math, source.language]
    return digest_of("source", source.text, json.dumps(options))


def executable_key(source: str, kernel: str, constants: Mapping[str, Scalar], engine: str) -> str:
    values = json.dumps(sorted((name, repr(value)) for name, value in constants.items()))
    return digest_of("executable", source, kernel, values, engine)


def bundle_of(source: Source) -> Bundle | None:
    """The bundle that has a source, whose included files, if any, are as they were.

    Files that are not on this machine, torch's own headers of another installation say, count as
    they were when the bundle was written.
    """
    key = source_key(source)
    for bundle in (*_used, *_named(settings.BUNDLE.value())):
        outline = bundle.outlines.get(key)
        if outline is not None and unchanged(_present(outline["dependencies"])):
            return bundle
    return None


def _present(dependencies: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(path, digest) for path, digest in dependencies if Path(path).exists()]


@functools.lru_cache(maxsize=8)
def _named(path: str) -> tuple[Bundle, ...]:
    return (read_bundle(Path(path)),) if path else ()


def executable_in(
    bundle: Bundle, source: str, kernel: str, constants: Mapping[str, Scalar], engine: str
) -> Entry:
    entry = bundle.executables.get(executable_key(source, kernel, constants, engine))
    if entry is None:
        values = "".join(f", {name}={value}" for name, value in constants.items())
        raise BundleError(
            f"the bundle for {bundle.target} has no code of kernel '{kernel}'{values} for the"
            f" {engine} engine: name it to `anymetal compile`"
        )
    return entry
