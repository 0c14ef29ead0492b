"""`anymetal compile`: kernels go in, a file that runs them without a compiler comes out."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anymetal.cli.files import check_writable
from anymetal.cli.kernel_arguments import parse_constant
from anymetal.cli.screen import Json, finish
from anymetal.cli.screen import console as the_console
from anymetal.cli.sources import Define, Include, Options, source_of
from anymetal.engines.ahead import Launches, Request, compile_bundle, targets
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import Sizes
from anymetal.errors import AnymetalError
from anymetal.launch.function_constants import checked
from anymetal.launch.requested import Requests
from anymetal.launch.shape import group_size_fault
from anymetal.nouns import ConstantValue, Source
from anymetal.store.bundle import write_bundle

TARGETS = targets()

app = typer.Typer()

Values = Mapping[str, Sequence[ConstantValue]]


@app.command(name="compile")
def compile_(
    output: Annotated[Path, typer.Option("-o", "--output", help="the file to write")],
    target: Annotated[str, typer.Option(help=f"what to compile for: {', '.join(TARGETS)}")],
    files: Annotated[
        list[Path] | None, typer.Argument(exists=True, dir_okay=False, help="Metal files")
    ] = None,
    include: Include = None,
    define: Define = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE[,VALUE]",
            help="a function constant; each of its values is compiled, a vector's as [1,2,3]",
        ),
    ] = None,
    group_size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X[,Y[,Z]]", help="a threadgroup that CPUs get code of its own for; repeatable"
        ),
    ] = None,
    operators: Annotated[
        bool,
        typer.Option(
            "--operators", help="every kernel that anymetal.ops and anymetal.linalg launch"
        ),
    ] = False,
    candidates: Annotated[
        bool,
        typer.Option("--candidates", help="with --operators: also what `anymetal tune` would try"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile kernels ahead of time, for `anymetal.load_library` or ANYMETAL_BUNDLE."""
    if target not in TARGETS:
        raise typer.BadParameter(f"target {target!r}; expected {', '.join(TARGETS)}")
    if not files and not operators:
        raise typer.BadParameter("name Metal files, or --operators")
    if candidates and not operators:
        raise typer.BadParameter("--candidates are those of --operators")
    check_writable(output=output)
    sources = [source_of(path, Options.parse(include, define)) for path in files or ()]
    values = dict(_constant(text) for text in constant or ())
    groups = [_group_size(text) for text in group_size or ()]
    work = Work(sources, target, values, groups)
    found = partial(_operators, candidates=candidates) if operators else None
    finish(work.write(the_console(), output, operators=found, as_json=as_json))


class Work:
    """What to compile: all kernels of the sources, with every value of the constants they have."""

    def __init__(
        self,
        sources: Sequence[Source],
        target: str,
        values: Values | None = None,
        groups: Sequence[Sizes] = (),
    ) -> None:
        self.sources = sources
        self.target = target
        self.values = values or {}
        self.groups = groups

    def write(
        self,
        console: Console,
        output: Path,
        *,
        operators: Callable[[str], Requests] | None = None,
        as_json: bool = False,
    ) -> bool:
        """Compiles all, and the kernels that `operators` finds for a device; False where one does
        not compile."""
        device = "cuda" if self.target.startswith("cuda") else "cpu"
        try:
            found = operators(device) if operators else Requests()
            wanted = [*self.kernels(), *found]
            bundle = compile_bundle(self.target, wanted, self._launches(found), found.policies)
        except AnymetalError as error:
            console.print(str(error), markup=False, highlight=False)
            return False
        write_bundle(output, bundle)
        size, count, target = output.stat().st_size, len(wanted), bundle.target
        if as_json:
            row = {"file": str(output), "target": target, "kernels": count, "bytes": size}
            print(json.dumps(row))
        else:
            console.print(f"{output}: {count} kernels for {target}, {size / 1024:.0f} KiB")
        return True

    def kernels(self) -> Iterator[Request]:
        """Every kernel of the sources."""
        for source in self.sources:
            outline = Compiler(source).outline
            types = {one.name: one.type for one in outline.constants}
            given = {name: some for name, some in self.values.items() if name in types}
            for kernel, chosen in itertools.product(
                outline.kernels, itertools.product(*given.values())
            ):
                yield source, kernel, _checked(kernel, types, zip(given, chosen, strict=True))

    def _launches(
        self, operators: Requests
    ) -> Callable[[Source, str, Mapping[str, ConstantValue]], Launches]:
        own = frozenset((group, ragged) for group in self.groups for ragged in (False, True))

        def launches(
            source: Source, kernel: str, constants: Mapping[str, ConstantValue]
        ) -> Launches:
            return own if source in self.sources else operators.launches(source, kernel, constants)

        return launches


def _checked(
    kernel: str, types: Mapping[str, str], values: Iterable[tuple[str, ConstantValue]]
) -> dict[str, ConstantValue]:
    """Values as a program will ask for them: 2 for a float is 2.0."""
    try:
        return {name: checked(kernel, name, types[name], value) for name, value in values}
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(f"--constant: {error}") from None


def _constant(text: str) -> tuple[str, list[ConstantValue]]:
    name, _, values = text.partition("=")
    if not name.isidentifier() or not values:
        raise typer.BadParameter(f"--constant {text}: expected NAME=VALUE")
    each = _BETWEEN_COMMAS.findall(values)
    return name, [parse_constant(f"--constant {text}", value) for value in each]


# A vector's value has commas of its own: [1,2,3].
_BETWEEN_COMMAS = re.compile(r"\[[^\]]*\]|[^,]+")


def _group_size(text: str) -> Sizes:
    parts = [int(part) if part.isdigit() else 0 for part in text.split(",")]
    x, y, z = (*parts, 1, 1)[:3]
    if len(parts) > 3 or group_size_fault((x, y, z)) is not None:
        raise typer.BadParameter(f"--group-size {text}: expected X, X,Y or X,Y,Z, 1024 threads")
    return x, y, z


def _operators(device: str, *, candidates: bool) -> Requests:
    import anymetal.linalg  # noqa: PLC0415  (both declare operators; takes a second)
    import anymetal.ops  # noqa: F401, PLC0415
    from anymetal.evidence.ahead import kernels_of as kernels_of_operators  # noqa: PLC0415
    from anymetal.ops.declare import OPERATORS  # noqa: PLC0415

    return kernels_of_operators(OPERATORS.values(), device, candidates=candidates)
