"""The verbs that measure operators: health, bench and tune, and what they have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    import torch

    from anymetal.ops.declare.declare import Operator

Item = TypeVar("Item")

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[OP]...", help="operators; all where none is named")
]
Device = Annotated[
    str | None, typer.Option(help="cpu or mps; the default is a GPU where there is one")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]

_PIPE_WIDTH = 200


def register(app: typer.Typer) -> None:
    """Add the verbs to the command."""
    app.command()(health)
    app.command()(bench)
    app.command()(tune)


def health(
    operators: Names = None,
    device: Device = None,
    cases: Annotated[
        int, typer.Option(min=0, help="shapes of each operator and dtype; 0 is all")
    ] = 3,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a report with plots")
    ] = None,
    write_docs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the table of errors as Markdown")
    ] = None,
    compare_engines: Annotated[
        bool, typer.Option("--compare-engines", help="run each case on the GPU and on the CPU")
    ] = False,
    json: Json = False,
) -> None:
    """Run every operator on this machine and judge it; the exit status is 1 when one fails."""
    from anymetal.cli import health as command  # noqa: PLC0415

    chosen = chosen_operators(operators)
    place = chosen_device(device)
    if compare_engines:
        _exit(command.compare(console(), chosen, place, cases, json))
    else:
        outputs = command.Outputs(html, write_docs, json)
        _exit(command.run(console(), chosen, place, cases, outputs))


def bench(
    operators: Names = None,
    device: Device = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="fp32, fp16 or bf16; may be given again")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="at most this long a row")] = 0.5,
    sizes: Annotated[int, typer.Option(min=0, help="shapes of each operator; 0 is all")] = 0,
    traffic: Annotated[bool, typer.Option(help="count the bytes that kernels move")] = True,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="append the rows of this run")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write an SVG: time over torch's, by size")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="an earlier run: JSON or a history"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Time operators beside torch's own and the naive composition; a wrong result gets no time."""
    from anymetal.cli import bench as command  # noqa: PLC0415

    outputs = command.Outputs(history, plot, compare, json)
    effort = command.Effort(seconds, sizes, traffic)
    _exit(
        command.run(
            console(), chosen_operators(operators), chosen_device(device), dtype, effort, outputs
        )
    )


def tune(
    operators: Names = None,
    device: Device = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="fp32, fp16 or bf16; may be given again")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="at most this long a candidate")] = 0.1,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the best values as a policy file")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="measure what the cache has already")
    ] = False,
    json: Json = False,
) -> None:
    """Find the best launch shapes on this machine and keep them; they hold for it alone."""
    from anymetal.cli import tune as command  # noqa: PLC0415

    outputs = command.Outputs(export, again, json)
    _exit(
        command.run(
            console(), chosen_operators(operators), chosen_device(device), dtype, seconds, outputs
        )
    )


def console() -> Console:
    """Where results go; made when needed, so that it writes to the stdout of that moment."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def chosen_operators(names: list[str] | None) -> list[Operator]:
    """The operators that are named, their gradients with them; a wrong name is wrong usage."""
    import anymetal.ops  # noqa: PLC0415
    from anymetal.ops.declare.declare import OPERATORS  # noqa: PLC0415

    del anymetal
    for name in names or ():
        if name not in OPERATORS:
            raise typer.BadParameter(f"no operator {name!r}; there are {', '.join(OPERATORS)}")
    wanted = names or list(OPERATORS)
    gradients = [f"{name}_backward" for name in wanted]
    return [op for name, op in OPERATORS.items() if name in wanted or name in gradients]


def chosen_device(name: str | None) -> torch.device:
    """The device to run on, which must be there."""
    import torch  # noqa: PLC0415

    from anymetal.evidence.machine import best_device  # noqa: PLC0415

    if name is None:
        return best_device()
    if name not in ("cpu", "mps"):
        raise typer.BadParameter(f"device {name!r}; expected cpu or mps")
    if name == "mps" and not torch.backends.mps.is_available():
        raise typer.BadParameter(
            "this torch has no mps device; ANYMETAL_DEVICE=1 enables a virtual one"
        )
    return torch.device(name)


def chosen_dtypes(names: list[str] | None) -> list[torch.dtype] | None:
    """The dtypes of these names, or None for all of an operator's."""
    from anymetal.ops.declare.variants import DTYPE_NAMES  # noqa: PLC0415

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


def _exit(success: bool) -> None:
    if not success:
        raise typer.Exit(1)
