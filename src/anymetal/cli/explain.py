"""`anymetal kernels --explain`: the engine that each kernel of a file gets, and why."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table

from anymetal.cli.sources import Options, source_of
from anymetal.cli.verbs.kernels import chosen_kernels, executable_of
from anymetal.engines.compiler import Compiler
from anymetal.errors import AnymetalError, EngineError

Row = dict[str, str]


def show_engines(
    console: Console, path: Path, options: Options, as_json: bool, pattern: str | None = None
) -> bool:
    """Print the engine of each kernel; False when the file does not compile."""
    try:
        compiler = Compiler(source_of(path, options))
        with nullcontext() if as_json else console.status("compiling"):
            rows = [explain(compiler, name) for name in chosen_kernels(compiler, pattern)]
    except AnymetalError as error:
        console.print(str(error), markup=False, highlight=False)
        return False
    if as_json:
        print(json.dumps({"kernels": rows}, indent=2))
    else:
        _print(console, path, rows)
    return True


def explain(compiler: Compiler, name: str) -> Row:
    """One kernel: its engine, or none, and the reason where it is not the first choice."""
    try:
        metadata = executable_of(compiler, name).metadata
    except EngineError as error:
        return {"name": name, "engine": "none", "why": str(error)}
    return {"name": name, "engine": metadata["engine"], "why": metadata["reason"]}


def _print(console: Console, path: Path, rows: list[Row]) -> None:
    table = Table("kernel", "engine", "why", title=path.name)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(row["name"], row["engine"], row["why"])
    console.print(table)
