"""`anymetal compile`: kernels go in, a file that runs them without a compiler comes out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anymetal.cli.files import check_writable
from anymetal.cli.screen import Json, finish
from anymetal.cli.screen import console as the_console
from anymetal.cli.sources import Define, Include, Options, source_of
from anymetal.engines import registry
from anymetal.engines.compiler import Compiler, compile_bundle
from anymetal.errors import AnymetalError
from anymetal.nouns import Scalar, Source
from anymetal.store.bundle import write_bundle

TARGETS = tuple(engine.name for engine in registry.CUDA_ENGINES.values())

app = typer.Typer()

Wanted = list[tuple[Source, str, Mapping[str, Scalar]]]


@app.command(name="compile")
def compile_(
    output: Annotated[Path, typer.Option("-o", "--output", help="the file to write")],
    target: Annotated[str, typer.Option(help=f"what to compile for: {' or '.join(TARGETS)}")],
    files: Annotated[
        list[Path] | None, typer.Argument(exists=True, dir_okay=False, help="Metal files")
    ] = None,
    include: Include = None,
    define: Define = None,
    operators: Annotated[
        bool, typer.Option("--operators", help="every kernel that anymetal.ops launches")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile kernels ahead of time, for `anymetal.load_library` or ANYMETAL_BUNDLE."""
    if target not in TARGETS:
        raise typer.BadParameter(f"target {target!r}; expected {', '.join(TARGETS)}")
    if not files and not operators:
        raise typer.BadParameter("name Metal files, or --operators")
    check_writable(output=output)
    sources = [source_of(path, Options.parse(include, define)) for path in files or ()]
    finish(write(the_console(), sources, target, output, operators=operators, as_json=as_json))


def write(
    console: Console,
    sources: list[Source],
    target: str,
    output: Path,
    *,
    operators: bool = False,
    as_json: bool = False,
) -> bool:
    """Compiles all kernels of the sources, and the operators'; False where one does not compile."""
    try:
        wanted = [*kernels_of(sources), *(_operators() if operators else ())]
        bundle = compile_bundle(target, wanted)
    except AnymetalError as error:
        console.print(str(error), markup=False, highlight=False)
        return False
    write_bundle(output, bundle)
    size, count = output.stat().st_size, len(bundle.executables)
    if as_json:
        print(json.dumps({"file": str(output), "target": target, "kernels": count, "bytes": size}))
    else:
        console.print(f"{output}: {count} kernels for {target}, {size / 1024:.0f} KiB")
    return True


def kernels_of(sources: list[Source]) -> Iterator[tuple[Source, str, Mapping[str, Scalar]]]:
    """Every kernel of the sources, with function constants left unset."""
    for source in sources:
        for name in Compiler(source).outline.kernels:
            yield source, name, {}


def _operators() -> Wanted:
    import anymetal.ops  # noqa: F401, PLC0415  (declares the operators; takes a second)
    from anymetal.evidence.ahead import kernels_of as kernels_of_operators  # noqa: PLC0415
    from anymetal.ops.declare import OPERATORS  # noqa: PLC0415

    return list(kernels_of_operators(OPERATORS.values(), "cuda"))
