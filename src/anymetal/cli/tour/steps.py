"""The steps of the tour: each shows one thing on the screen and says whether it worked."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from anymetal.checker.context import check
from anymetal.checker.finding import Finding
from anymetal.checker.report import Report
from anymetal.checker.terminal import finding_lines, summary
from anymetal.cli.verbs.run import environment
from anymetal.evidence.exercise import Exercise
from anymetal.evidence.judge import Judgement, judge
from anymetal.launch.shader import ShaderLibrary, compile_shader
from anymetal.ops.declare import OPERATORS

HERE = Path(__file__).parent
KERNEL = HERE / "row_sums.metal"
SCRIPT = HERE / "mac_script.py"
OPERATORS_SHOWN = ("rms_norm", "softmax", "linear")

_BARRIER = "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
_ROWS, _COLUMNS, _GROUP = 64, 1000, 256
_CPU = torch.device("cpu")


@dataclass
class Tour:
    """What the steps share: the screen, and the build of the virtual device, which starts early."""

    console: Console
    build: subprocess.Popen[str] | None = None
    kernel: str = field(default_factory=KERNEL.read_text)

    def say(self, text: str) -> None:
        self.console.print(Padding(Text.from_markup(text), (0, 2)))

    def show(self, thing: object) -> None:
        self.console.print(Padding(thing, (1, 0, 1, 4)))  # type: ignore[arg-type]

    def code(self, text: str, language: str, first_line: int = 1, *, numbers: bool = True) -> None:
        self.show(
            Syntax(
                text.rstrip("\n"),
                language,
                theme="ansi_dark",
                background_color="default",
                line_numbers=numbers,
                start_line=first_line,
                word_wrap=True,
            )
        )


@dataclass(frozen=True)
class Step:
    """One heading of the tour and what comes below it."""

    title: str
    act: Callable[[Tour], bool]


def start_build() -> subprocess.Popen[str] | None:
    """Begin to build the virtual device beside the first steps; None where torch has a real one."""
    if torch.backends.mps.is_available():
        return None
    command = [sys.executable, "-m", "anymetal", "device", "build"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_kernel(tour: Tour) -> bool:
    tour.say(f"This is [bold]{KERNEL.name}[/], a kernel as you would write it for a Mac's GPU:")
    source = tour.kernel.partition("// One")
    tour.code(source[1] + source[2], "cpp", first_line=source[0].count("\n") + 1)
    tour.say("Python calls it as PyTorch on a Mac does:")
    tour.code(
        "lib = anymetal.compile_shader(source)\n"
        f"lib.row_sums(x, sums, {_COLUMNS}, threads=rows * {_GROUP}, group_size={_GROUP})",
        "python",
        numbers=False,
    )
    x = torch.randn(_ROWS, _COLUMNS, generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    with tour.console.status("compiling the kernel for this machine's processors"):
        library = compile_shader(tour.kernel, name=KERNEL.name)
        sums = _row_sums(library, x)
    seconds = time.perf_counter() - start
    judgement = judge(sums, x.sum(1), x.double().sum(1), torch.float32)
    tour.say(f"Compiled and run in {seconds:.1f} s. {_verdict(judgement)}")
    return judgement.passed


def find_bug(tour: Tour) -> bool:
    tour.say(
        "Now we forget the first barrier. On a GPU that is a wrong result now and then, and"
        " nobody says where. [bold]anymetal.check()[/] runs the same call and does:"
    )
    x = torch.ones(4, _COLUMNS)
    broken = tour.kernel.replace(_BARRIER, "\n", 1)  # the lines keep their numbers
    found = _checked(tour, broken, x)
    for finding in found.findings:
        _show_finding(tour, finding)
    tour.console.print()
    tour.say("The last lines say what mends it, so we put the barrier there:")
    tour.code(_difference(broken, tour.kernel), "diff", numbers=False)
    mended = _checked(tour, tour.kernel, x)
    tour.say(f"[green]{summary(mended)}[/]" if not mended.findings else f"[red]{mended}[/]")
    return any(finding.kind == "race" for finding in found) and not mended.findings


def run_mac_script(tour: Tour) -> bool:
    tour.say(f"[bold]{SCRIPT.name}[/] was written for a Mac and is not changed:")
    tour.code(SCRIPT.read_text(), "python")
    if tour.build is not None:
        with tour.console.status("building the virtual mps device with the C++ compiler, once"):
            _, errors = tour.build.communicate()
        if tour.build.returncode:
            tour.say("[red]This step needs a C++ compiler:[/]")
            tour.show(Text(errors.strip()))
            return False
    tour.say(f"[cyan]$ {_command_name()} run {SCRIPT.name}[/]")
    with tour.console.status("running"):
        command = [sys.executable, str(SCRIPT)]
        where = environment() if tour.build is not None else dict(os.environ)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=where)
    tour.show(Text((done.stdout if done.returncode == 0 else done.stderr).rstrip()))
    if done.returncode:
        tour.say("[red]The script failed.[/]")
    return done.returncode == 0


def judge_operators(tour: Tour) -> bool:
    tour.say(
        "[bold]anymetal.ops[/] has operators whose kernels are Metal, with gradients. The error of"
        " each against float64 stands beside that of torch's own operator in the same type:"
    )
    table = Table("operator", "type", "shape", "error", "torch's error", "", box=None)
    passed = True
    for name in OPERATORS_SHOWN:
        operator = OPERATORS[name]
        case = operator.cases[len(operator.cases) // 2]
        for dtype in (torch.float32, torch.bfloat16):
            exercise = Exercise(operator, dtype, case, _CPU)
            with tour.console.status(f"compiling and running {name}"):
                judgement = exercise.judge_results()
            passed = passed and judgement.passed
            errors = (f"{judgement.error:.1e}", f"{judgement.torch_error:.1e}")
            mark = "[green]agrees[/]" if judgement.passed else "[red]WRONG[/]"
            table.add_row(name, exercise.dtype_name, case.name, *errors, mark)
    tour.show(table)
    return passed


def say_what_is_next(tour: Tour) -> bool:
    table = Table(box=None, show_header=False, padding=(0, 2, 1, 0))
    name = _command_name()
    for words, arguments in next_commands().items():
        command = Text(f"{name} {arguments}", "cyan", overflow="fold")
        table.add_row(Text(f"{words}\n").append_text(command))
    tour.show(table)
    return True


def next_commands() -> dict[str, str]:
    """What to do, and the words behind `anymetal` that do it, where the package is installed."""
    arguments = "--arg 'float32[4,1000]=random' --arg 'float32[4]' --arg 1000"
    shape = "--threads 1024 --group-size 256"
    return {
        "judge every operator on this machine (minutes)": "health",
        "see what a Metal file offers": f"kernels {KERNEL}",
        "check one kernel": f"check {KERNEL} {arguments} {shape}",
        "check every kernel call of a program of yours": "check train.py",
        "run a program that was written for a Mac": f"run {SCRIPT}",
        "find the errors in your Metal files": f"lint {KERNEL}",
    }


STEPS = (
    Step("A kernel runs, and agrees with float64", run_kernel),
    Step("A bug is found, with its line", find_bug),
    Step("A script for a Mac runs unchanged", run_mac_script),
    Step("Operators, and how accurate they are", judge_operators),
    Step("What to try next", say_what_is_next),
)


def _command_name() -> str:
    """How to call the command here: `make demo` leaves .venv/bin out of the PATH."""
    script = Path(sys.executable).parent / "anymetal"
    if shutil.which("anymetal"):
        return "anymetal"
    if not script.exists():
        return "python -m anymetal"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def _row_sums(library: ShaderLibrary, x: torch.Tensor) -> torch.Tensor:
    sums = torch.empty(x.shape[0])
    library.row_sums(x, sums, x.shape[1], threads=x.shape[0] * _GROUP, group_size=_GROUP)
    return sums


def _checked(tour: Tour, source: str, x: torch.Tensor) -> Report:
    with tour.console.status("compiling the kernel again, with every access watched"):
        library = compile_shader(source, name=KERNEL.name)
        with check() as report:
            _row_sums(library, x)
    return report


def _show_finding(tour: Tour, finding: Finding) -> None:
    """As `anymetal check` prints it; lines that are too long go on below their beginning."""
    tour.console.print()
    for number, line in enumerate(finding_lines(finding)):
        text = Text.assemble(*line)
        text = text[2:] if number else text
        tour.console.print(Padding(text, (0, 2, 0, 6 if number else 4)))


def _verdict(judgement: Judgement) -> str:
    words = "[green]It agrees with float64[/]" if judgement.passed else "[red]It is WRONG[/]"
    return (
        f"{words}: the largest error is {judgement.error:.1e} of the largest sum, and torch's own"
        f" sum has {judgement.torch_error:.1e}."
    )


def _difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
