"""Kernels go in, a bundle comes out: everything that a machine without a compiler needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from anymetal.engines import bundles, choose, registry
from anymetal.engines.apart import is_large, run_apart
from anymetal.engines.collector import collector_paused
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN, Sizes
from anymetal.engines.cpu import bundled
from anymetal.engines.cpu.simdgroups.engine import ANYHOW, shapes_for
from anymetal.machine.processor import code_for
from anymetal.nouns import ConstantValue, Source
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.store.bundle import Bundle
from anymetal.store.cache import Entry, default_store, digest_of

Constants = Mapping[str, ConstantValue]
Request = tuple[Source, str, Constants]
# How a kernel is launched: sizes of threadgroups, and whether the grid's edges cut some.
Launches = frozenset[tuple[Sizes, bool]]


def targets() -> tuple[str, ...]:
    """The targets that this machine compiles for."""
    cuda = (engine.name for engine in registry.CUDA_ENGINES.values())
    return (*cuda, *bundled.targets())


def compile_bundle(
    target: str,
    wanted: Iterable[Request],
    launches: Callable[[Source, str, Constants], Launches] | None = None,
    policies: Mapping[str, Any] | None = None,
) -> Bundle:
    """Kernels of sources, with their function constants, compiled for a target.

    `launches` says how a kernel will be launched; left out, or where it says nothing, the code
    takes every threadgroup. `policies` are the launch shapes that the kernels were chosen by.
    """
    processors = bundled.targets()
    if target not in processors:
        bundle = _bundle(target, wanted, lambda *request: _for_cuda(target, *request))
        return replace(bundle, policies=policies or {})

    def make(compiler: Compiler, kernel: str, constants: Constants) -> dict[str, Entry]:
        known = launches(compiler.source, kernel, constants) if launches else frozenset()
        return _for_cpu(compiler, kernel, constants, _shapes(known))

    with code_for(processors[target]):
        bundle = _bundle(f"cpu-{processors[target]}", wanted, make)
        runtime = {bundled.runtime_key(bundle.target): bundled.runtime_entry()}
    executables = {**bundle.executables, **runtime}
    return replace(bundle, executables=executables, policies=policies or {})


def _bundle(
    target: str,
    wanted: Iterable[Request],
    make: Callable[[Compiler, str, Constants], dict[str, Entry]],
) -> Bundle:
    outlines: dict[str, dict[str, Any]] = {}
    executables: dict[str, Entry] = {}
    compilers: dict[Source, Compiler] = {}
    for source, kernel, constants in wanted:
        if source not in compilers:
            compilers[source] = Compiler(source)
        key = bundles.source_key(source)
        outlines[key] = asdict(compilers[source].outline)
        for engine, entry in make(compilers[source], kernel, constants).items():
            executables[bundles.executable_key(key, kernel, constants, engine)] = entry
    return Bundle(target, outlines, executables)


def _for_cuda(
    target: str, compiler: Compiler, kernel: str, constants: Constants
) -> dict[str, Entry]:
    made = compiler.compile(kernel, constants, PLAIN, target)
    return {target: Entry(made.metadata, made.payload)}


def _shapes(launches: Launches) -> frozenset[GroupShape]:
    """What is launched, and for other launches code that takes less for granted."""
    if not launches:
        return bundled.USUAL_SHAPES
    shapes = {shape for group, ragged in launches for shape in shapes_for(group, ragged=ragged)}
    return frozenset({*shapes, *(GroupShape(WIDTH) if s.row == WIDTH else ANYHOW for s in shapes)})


def _for_cpu(
    compiler: Compiler, kernel: str, constants: Constants, shapes: frozenset[GroupShape]
) -> dict[str, Entry]:
    """From the store, where it was made before."""
    values = json.dumps(sorted((name, repr(value)) for name, value in constants.items()))
    key = digest_of(compiler.key, kernel, values, *sorted(map(str, shapes)))
    store = default_store()
    found = store.get("bundled", key)
    if found is None:
        with collector_paused():
            made = _made(compiler.source, kernel, constants, shapes)
        note = {name: [entry.note, len(entry.payload)] for name, entry in made.items()}
        payload = b"".join(entry.payload for entry in made.values())
        store.put("bundled", key, {"engines": note}, payload)
        return made
    entries, start = {}, 0
    for name, (note, length) in found.note["engines"].items():
        entries[name] = Entry(note, found.payload[start : start + length])
        start += length
    return entries


def _made(
    source: Source, kernel: str, constants: Constants, shapes: frozenset[GroupShape]
) -> dict[str, Entry]:
    frontend = registry.FRONTENDS[type(source)]
    target = choose.checking_target()
    program = frontend.program(source, kernel, constants, target, optimise=True)
    if not is_large(program.ir):
        return bundled.entries(program, shapes)
    what = f"compiling kernel '{kernel}' ({len(program.ir) >> 10} KiB of LLVM IR)"
    made: dict[str, Entry] = run_apart(what, bundled.entries, program, shapes)
    return made
