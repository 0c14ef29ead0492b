"""The tour: every step works, one that does not fails it, and the commands it names work."""

from __future__ import annotations

import os
import shlex
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from anymetal.checker.report import Report
from anymetal.cli.app import app
from anymetal.cli.tour import steps
from anymetal.cli.verbs.demo import take_tour


def taken(width: int = 80) -> tuple[bool, str]:
    screen = StringIO()
    worked = take_tour(Console(file=screen, width=width))
    return worked, screen.getvalue()


# A terminal of 120 columns too in `make thorough`.
WIDTHS = [80, 120] if os.environ.get("ANYMETAL_TEST_ALL") == "1" else [80]


@pytest.mark.metal_check
@pytest.mark.parametrize("width", WIDTHS)
def test_every_step_works_and_its_own_kernels_are_clean(width: int, metal_report: Report) -> None:
    worked, text = taken(width)
    assert worked, text
    headings = [text.index(f"{n}  {step.title}") for n, step in enumerate(steps.STEPS, 1)]
    assert headings == sorted(headings)
    assert "It agrees with float64" in text
    assert "error[race] in row_sums" in text and "1 launch, nothing found" in text
    assert "loss" in text and "on mps:0" in text
    assert text.count("agrees\n") + text.count("agrees ") >= 6
    assert max(len(line) for line in text.splitlines()) <= width
    assert "row_sums" in metal_report.kernels


def test_kernel_and_script_fit_into_80_columns() -> None:
    for path in (steps.KERNEL, steps.SCRIPT):
        assert max(len(line) for line in path.read_text().splitlines()) <= 68


def test_wrong_kernel_fails_the_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=StringIO(), width=80)
    wrong = steps.KERNEL.read_text().replace("sums[row] = partial[0]", "sums[row] = 1")
    assert not steps.run_kernel(steps.Tour(console, kernel=wrong))
    monkeypatch.setattr("anymetal.cli.verbs.demo.STEPS", (steps.Step("", lambda _: False),))
    monkeypatch.setattr("anymetal.cli.verbs.demo.start_build", lambda: None)
    worked, text = taken()
    assert not worked and "Step 1 did not work" in text


def test_missing_compiler_is_said_and_fails_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_CXX", "no-such-compiler")
    screen = StringIO()
    tour = steps.Tour(Console(file=screen, width=80), steps.start_build())
    assert not steps.run_mac_script(tour)
    assert "needs a C++ compiler" in screen.getvalue() and "apt install g++" in screen.getvalue()


@pytest.mark.parametrize("command", [c for c in steps.next_commands().values() if ".metal" in c])
def test_commands_to_try_next_work(command: str) -> None:
    result: Any = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, result.output
