"""`anymetal kernels --explain`: the engine that each kernel of a file gets, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table

from anymetal import settings
from anymetal.cli.sources import Options, source_of
from anymetal.cli.verbs.kernels import all_on
from anymetal.errors import AnymetalError, EngineError, UnsetConstantError
from anymetal.launch.workshop import REGIONS, Workshop
from anymetal.nouns import Scalar

Row = dict[str, str]


def show_engines(console: Console, path: Path, options: Options, as_json: bool) -> bool:
    """Print the engine of each kernel; False when the file does not compile."""
    try:
        workshop = Workshop(source_of(path, options))
        with nullcontext() if as_json else console.status("compiling"):
            rows = [explain(workshop, name) for name in workshop.outline.kernels]
    except AnymetalError as error:
        console.print(str(error), markup=False, highlight=False)
        return False
    if as_json:
        print(json.dumps({"kernels": rows}, indent=2))
    else:
        _print(console, path, rows)
    return True


def explain(workshop: Workshop, name: str) -> Row:
    """One kernel: its engine, or none, and the reason where it is not the fast one."""
    try:
        metadata = _compiled(workshop, name)
    except EngineError as error:
        return {"name": name, "engine": "none", "why": str(error)}
    why = metadata.get("why", "")
    if metadata["engine"] != REGIONS.name and not why:
        why = f"{settings.ENGINE.variable}={settings.ENGINE.text()}"
    return {"name": name, "engine": metadata["engine"], "why": why}


def _compiled(workshop: Workshop, name: str) -> Mapping[str, str]:
    try:
        return workshop.compile(name, {}).metadata
    except UnsetConstantError:
        indices = all_on(workshop.prepared())
        names = {index: other for other, index, _ in workshop.outline.constants}
        constants: dict[str, Scalar] = {names[int(index)]: indices[index] for index in indices}
        return workshop.compile(name, constants).metadata


def _print(console: Console, path: Path, rows: list[Row]) -> None:
    table = Table("kernel", "engine", "why", title=path.name)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(row["name"], row["engine"], row["why"])
    console.print(table)
