"""`anymetal demo`: take a tour of about a minute."""

from __future__ import annotations

import time

import typer
from rich.console import Console

from anymetal.cli.screen import console as the_console
from anymetal.cli.screen import finish
from anymetal.cli.tour.steps import STEPS, Tour, start_build

app = typer.Typer()
_WIDEST = 100


@app.command()
def demo() -> None:
    """Take a tour: a kernel runs, a bug is found, a script for a Mac runs, operators agree."""
    console = the_console()
    console.width = min(console.width, _WIDEST)
    finish(take_tour(console))


def take_tour(console: Console) -> bool:
    """Show all steps; False when one did not work."""
    start = time.perf_counter()
    console.print(
        "\n[bold]anymetal[/] runs, checks and judges Metal kernels for PyTorch on this machine."
    )
    tour = Tour(console, start_build())
    failed = []
    try:
        for number, step in enumerate(STEPS, 1):
            console.print()
            console.rule(f"[bold]{number}  {step.title}[/]", align="left", style="cyan")
            console.print()
            if not step.act(tour):
                failed.append(str(number))
    finally:
        if tour.build is not None and tour.build.poll() is None:
            tour.build.terminate()
    seconds = time.perf_counter() - start
    if failed:
        console.print(f"  [bold red]Step {' and '.join(failed)} did not work[/], see above.\n")
    else:
        console.print(f"  [bold green]All of it worked[/], in {seconds:.0f} s.\n")
    return not failed
