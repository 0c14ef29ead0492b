"""Tables that a terminal of 80 columns shows whole: words fold, numbers never."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

NARROW = 80


def new_table(*words: str, right: Sequence[str] = (), last: str | None = None) -> Table:
    """Columns of words, of which the first folds, columns of numbers, and a word at the end."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(words):
        shown.add_column(heading, overflow="fold", no_wrap=place > 0)
    for heading in right:
        shown.add_column(heading, justify="right", no_wrap=True)
    if last is not None:
        shown.add_column(last, overflow="fold", no_wrap=True)
    return shown


def as_text(*parts: object, width: int | None = None) -> str:
    """What a console of this width prints, without colours; the terminal's own by default."""
    columns = width or max(NARROW, shutil.get_terminal_size((NARROW, 24)).columns)
    file = io.StringIO()
    console = Console(file=file, width=columns, color_system=None, highlight=False, markup=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).strip("\n")
