"""What the verbs that measure operators share: which ones, on which device, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import anymetal.linalg
import anymetal.ops  # noqa: F401  (declares the operators)
from anymetal.evidence.machine import best_device
from anymetal.ops.declare import OPERATORS, AnyOperator
from anymetal.ops.declare.variants import DTYPE_NAMES

Item = TypeVar("Item")

Dtypes = Annotated[list[str] | None, typer.Option(help="fp32, fp16 or bf16; may be given again")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[OP]...", help="operators; all where none is named")
]
Device = Annotated[
    str | None, typer.Option(help="cpu, mps or cuda; the default is a Mac's GPU where there is one")
]


def chosen_operators(names: list[str] | None) -> list[AnyOperator]:
    """The operators that are named, their gradients with them; a wrong name is wrong usage."""
    for name in names or ():
        if name not in OPERATORS:
            raise typer.BadParameter(f"no operator {name!r}; there are {', '.join(OPERATORS)}")
    wanted = names or list(OPERATORS)
    gradients = [f"{name}_backward" for name in wanted]
    return [op for name, op in OPERATORS.items() if name in wanted or name in gradients]


def chosen_device(name: str | None) -> torch.device:
    """The device to run on, which must be there."""
    if name is None:
        return best_device()
    if name not in ("cpu", "mps", "cuda"):
        raise typer.BadParameter(f"device {name!r}; expected cpu, mps or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("this torch has no cuda device")
    if name == "mps" and not torch.backends.mps.is_available():
        raise typer.BadParameter(
            "this torch has no mps device; ANYMETAL_DEVICE=1 enables a virtual one"
        )
    return torch.device(name)


def chosen_dtypes(names: list[str] | None) -> list[torch.dtype] | None:
    """The dtypes of these names, or None for all of an operator's."""
    by_name = {name: dtype for dtype, name in DTYPE_NAMES.items()}
    for name in names or ():
        if name not in by_name:
            raise typer.BadParameter(f"dtype {name!r}; expected {', '.join(by_name)}")
    return [by_name[name] for name in names] if names else None


def with_progress(
    where: Console, items: Iterable[Item], describe: Callable[[Item], str], *, quiet: bool = False
) -> Iterator[tuple[Item, Callable[[Any], None]]]:
    """Each item with a function that prints above the bar; nothing at all where `quiet`."""
    listed = list(items)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns,
        TimeElapsedColumn(),
        console=where,
        transient=True,
        disable=quiet or not where.is_terminal,
    )

    def show(line: Any) -> None:
        if not quiet:
            bar.console.print(line)

    with bar:
        task = bar.add_task("", total=len(listed))
        for item in listed:
            bar.update(task, description=describe(item))
            yield item, show
            bar.advance(task)
