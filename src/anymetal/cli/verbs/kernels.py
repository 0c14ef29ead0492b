"""`anymetal kernels`: show the kernels in a file, their parameters and threadgroup memory."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from anymetal.cli.screen import Json, finish
from anymetal.cli.screen import console as the_console
from anymetal.cli.sources import Define, Include, Library, Options, is_binary, source_of
from anymetal.engines.choose import REFERENCE
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN, Executable
from anymetal.errors import AnymetalError, UnsetConstantError
from anymetal.launch.function_constants import elements_of
from anymetal.nouns import Argument, ConstantValue, FunctionConstant

app = typer.Typer()
_MOST_DESCRIBED = 100  # each kernel of a metallib takes a tenth of a second


@app.command()
def kernels(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="a Metal file or a metallib")
    ],
    kernel: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="only these: softmax, *_float")
    ] = None,
    library: Library = None,
    include: Include = None,
    define: Define = None,
    as_json: Json = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="the engine that each kernel gets, and why")
    ] = False,
) -> None:
    """Show the kernels in a file: parameters and threadgroup memory.

    Of a large metallib these are shown for the kernels that --kernel names; without it, the names.
    """
    from anymetal.cli.explain import show_engines  # noqa: PLC0415  (it imports this file)

    show = show_engines if explain else show_kernels
    finish(show(the_console(), file, Options.parse(include, define, library), as_json, kernel))


def show_kernels(
    console: Console, path: Path, options: Options, as_json: bool, pattern: str | None = None
) -> bool:
    """Print the kernels of a file; False when it does not compile."""
    try:
        compiler = Compiler(source_of(path, options))
        names = chosen_kernels(compiler, pattern)
        if pattern is None and is_binary(path) and len(names) > _MOST_DESCRIBED:
            print(json.dumps({"kernels": names}, indent=2) if as_json else "\n".join(names))
            return True
        with nullcontext() if as_json else console.status("compiling"):
            rows = [describe(compiler, name) for name in names]
        constants = _constants(compiler, names)
    except AnymetalError as error:
        console.print(str(error), markup=False, highlight=False)
        return False
    if as_json:
        print(json.dumps(_as_data(rows, constants), indent=2))
        return True
    _print(console, path, rows, constants)
    return True


def chosen_kernels(compiler: Compiler, pattern: str | None) -> list[str]:
    """The kernels that a pattern names, all without one."""
    names = compiler.outline.kernels
    found = [name for name in names if pattern is None or fnmatchcase(name, pattern)]
    if names and not found:
        raise typer.BadParameter(f"--kernel {pattern}: none of {len(names)} kernels is called so")
    return found


def _constants(compiler: Compiler, names: list[str]) -> list[FunctionConstant]:
    """The function constants of these kernels, each once."""
    found = (one for name in names for one in compiler.constants_of(name))
    return list({(one.name, one.index): one for one in found}.values())


def describe(compiler: Compiler, name: str) -> dict[str, Any]:
    """One kernel: its typed parameters, its limits, and the threadgroup memory it declares."""
    executable = executable_of(compiler, name, REFERENCE)
    return {
        "name": name,
        "arguments": executable.arguments,
        "threadgroup_memory": executable.static_threadgroup_memory_length,
        "max_threads": executable.max_threads_per_threadgroup,
    }


def executable_of(compiler: Compiler, name: str, engine: str = "") -> Executable:
    """Compile a kernel; function constants that it needs and nobody set are on."""
    try:
        return compiler.compile(name, {}, PLAIN, engine)
    except UnsetConstantError:
        return compiler.compile(name, set_constants(compiler, name), PLAIN, engine)


def set_constants(compiler: Compiler, name: str) -> dict[str, ConstantValue]:
    """All function constants of a kernel: with true and 1, no parameter vanishes."""
    return {one.name: _on(one.type) for one in compiler.constants_of(name)}


def _on(kind: str) -> ConstantValue:
    element, count = elements_of(kind)
    one = True if element == "bool" else 1
    return one if count == 1 else (one,) * count


def place_of(argument: Argument) -> str:
    """Where an argument comes from: a buffer, threadgroup memory, or the machine."""
    if argument.role == "builtin":
        return str(argument.builtin)
    return f"{argument.role} {argument.index}"


def type_of(argument: Argument) -> str:
    """The type as Metal writes it, with its address space."""
    if argument.role == "builtin":
        return argument.type
    const = "const " if argument.is_const and argument.space != "constant" else ""
    mark = "*" if argument.is_pointer else "&"
    return f"{argument.space} {const}{argument.type}{mark}"


def _as_data(rows: list[dict[str, Any]], constants: list[FunctionConstant]) -> dict[str, Any]:
    return {
        "kernels": [
            {**row, "arguments": [asdict(argument) for argument in row["arguments"]]}
            for row in rows
        ],
        "function_constants": [
            {"name": constant.name, "index": constant.index, "type": constant.type}
            for constant in constants
        ],
    }


def _print(
    console: Console, path: Path, rows: list[dict[str, Any]], constants: list[FunctionConstant]
) -> None:
    table = Table("kernel", "parameter", "type", "from", "threadgroup memory", title=path.name)
    table.columns[4].justify = "right"
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        memory = f"{row['threadgroup_memory']} B"
        name = row["name"]
        for argument in row["arguments"] or (None,):
            cells = (
                (argument.name, type_of(argument), place_of(argument)) if argument else ("",) * 3
            )
            table.add_row(name, *cells, memory)
            name = memory = ""
        table.add_section()
    console.print(table)
    for constant in constants:
        console.print(
            f"function constant {constant.index}: {constant.type} {constant.name}", markup=False
        )
