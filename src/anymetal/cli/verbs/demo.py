"""`anymetal demo`: a guided tour: four kernels are compiled, run and compared with float64."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import typer
from rich.console import Console
from rich.table import Table

from anymetal.cli.screen import console as the_console
from anymetal.cli.screen import finish
from anymetal.launch.shader import ShaderLibrary, compile_shader

app = typer.Typer()
_KERNELS = Path(__file__).parents[1] / "demo_kernels"
# A kernel adds in another order than torch: twice torch's own error is fine, and so is this much.
_FLOOR = 1e-6
_REPEATS = 5


@dataclass(frozen=True)
class Case:
    """One kernel: how to run it, what float64 says, and what torch makes of it in its own type."""

    title: str
    library: ShaderLibrary
    run: Callable[[], torch.Tensor]
    exact: torch.Tensor
    torch_result: torch.Tensor
    compile_seconds: float


@dataclass(frozen=True)
class Verdict:
    """How far a kernel and torch are from float64, relative to the largest value."""

    error: float
    torch_error: float
    seconds: float

    @property
    def passed(self) -> bool:
        return self.error <= max(2 * self.torch_error, _FLOOR)


@app.command()
def demo() -> None:
    """A guided tour: four kernels are compiled, run and compared with float64."""
    finish(run_demo(the_console()))


def run_demo(console: Console) -> bool:
    """Print the tour; False when a kernel is wrong."""
    console.print(
        "\n[bold]anymetal[/] runs Metal kernels for PyTorch on this machine's processors.\n"
        "Four kernels are compiled, run and compared with float64:\n"
    )
    generator = torch.Generator().manual_seed(0)
    table = _table()
    passed = True
    with console.status("compiling"):
        for make in (_fill, _axpy, _softmax_rows, _matmul):
            case = make(generator)
            verdict = judge(case)
            passed = passed and verdict.passed
            table.add_row(*_row(case, verdict))
    console.print(table)
    console.print(_next_steps() if passed else "[red]A kernel is wrong on this machine.[/]")
    return passed


def judge(case: Case) -> Verdict:
    """Run a case and measure it; the time is the shortest of a few runs."""
    result = case.run()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        case.run()
        times.append(time.perf_counter() - start)
    scale = case.exact.abs().max().item()
    return Verdict(
        error=(result.double() - case.exact).abs().max().item() / scale,
        torch_error=(case.torch_result.double() - case.exact).abs().max().item() / scale,
        seconds=min(times),
    )


def _load(name: str, kernel: str) -> tuple[ShaderLibrary, float]:
    """Compile a file and one kernel of it; says how long that took."""
    path = _KERNELS / f"{name}.metal"
    start = time.perf_counter()
    library = compile_shader(path.read_text(), name=path.name)
    getattr(library, kernel)
    return library, time.perf_counter() - start


def _fill(generator: torch.Generator) -> Case:
    library, seconds = _load("fill", "fill")
    out = torch.empty(1 << 20)

    def run() -> torch.Tensor:
        library.fill(out, 3.14)
        return out

    exact = torch.full(out.shape, 3.14, dtype=torch.float64)
    return Case("fill, 1M floats", library, run, exact, torch.full_like(out, 3.14), seconds)


def _axpy(generator: torch.Generator) -> Case:
    library, seconds = _load("axpy", "axpy_half")
    x = torch.randn(1 << 20, generator=generator).half()
    start = torch.randn(1 << 20, generator=generator).half()

    def run() -> torch.Tensor:
        y = start.clone()
        library.axpy_half(x, y, 0.5)
        return y

    exact = 0.5 * x.double() + start.double()
    return Case("axpy, 1M halves", library, run, exact, 0.5 * x + start, seconds)


def _softmax_rows(generator: torch.Generator) -> Case:
    library, seconds = _load("softmax_rows", "softmax_rows")
    rows, columns, group = 256, 1000, 256
    x = 4 * torch.randn(rows, columns, generator=generator)

    def run() -> torch.Tensor:
        y = torch.empty_like(x)
        library.softmax_rows(x, y, columns, threads=rows * group, group_size=group)
        return y

    exact = torch.softmax(x.double(), -1)
    title = f"softmax_rows, {rows} x {columns} floats"
    return Case(title, library, run, exact, torch.softmax(x, -1), seconds)


def _matmul(generator: torch.Generator) -> Case:
    library, seconds = _load("matmul", "matmul")
    size, lanes, tile = 256, 32, 16
    a, b = torch.randn(2, size, size, generator=generator)

    def run() -> torch.Tensor:
        c = torch.empty(size, size)
        shape = [size, size, size]
        grid = (size // tile * lanes, size // tile)
        library.matmul(a, b, c, shape, threads=grid, group_size=(lanes, 1), arg_casts="int32")
        return c

    title = f"matmul, simdgroup matrices, {size}³ floats"
    return Case(title, library, run, a.double() @ b.double(), a @ b, seconds)


def _table() -> Table:
    table = Table(
        "kernel",
        "compile or load",
        "run",
        "error",
        "torch's error",
        "",
        caption="errors against float64, relative to the largest value",
    )
    for column in table.columns[1:5]:
        column.justify = "right"
    return table


def _row(case: Case, verdict: Verdict) -> tuple[str, ...]:
    return (
        case.title,
        f"{case.compile_seconds * 1e3:.0f} ms",
        f"{verdict.seconds * 1e3:.2f} ms",
        f"{verdict.error:.1e}",
        f"{verdict.torch_error:.1e}",
        "[green]agrees[/]" if verdict.passed else "[red]WRONG[/]",
    )


def _next_steps() -> str:
    """Commands as they can be typed here: `make demo` leaves .venv/bin out of the PATH."""
    command = Path(sys.argv[0]).absolute()
    here = Path.cwd()
    command = command.relative_to(here) if command.is_relative_to(here) else Path(command.name)
    kernels = _KERNELS.relative_to(here) if _KERNELS.is_relative_to(here) else _KERNELS
    return f"""
[bold]What to try next[/]
  the parameters of a kernel   [cyan]{command} kernels {kernels / "matmul.metal"}[/]
  the errors in your files     [cyan]{command} lint FILE.metal ...[/]
  a kernel from Python         [cyan]lib = anymetal.compile_shader(source); lib.kernel(x, y)[/]
  all tests                    [cyan]make test[/]
"""
