"""A sample of the attack; `make attack` runs all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from .__main__ import judged
from .cases import FOLDER, Hostile, hostile_files
from .sources import generated
from .worker import ROOT, Worker

STEP = 1 if os.environ.get("ANYMETAL_TEST_ALL") else 13


def sampled() -> list[Hostile]:
    """Which cases these are depends on nothing but the order. Of the sources that wait for the
    compile limit a sample has one, and a limit of one second."""
    cases = [*hostile_files(), *generated()]
    if STEP == 1:
        return cases
    patient = [case for case in cases if case.limit < Hostile.limit]
    quick = [case for case in cases if case not in patient]
    return [*quick[::STEP], replace(patient[0], limit=1)]


def test_hostile_sources_end_as_promised() -> None:
    cases = sampled()
    with Worker() as worker:
        wrong = {case.name: [*filter(None, judged(worker, case))] for case in cases}
    assert not {name: faults for name, faults in wrong.items() if faults}


@pytest.mark.parametrize("folder", ["planted", "correct"])
def test_checker_finds_what_is_there_and_nothing_else(folder: str) -> None:
    files: list[Path] = sorted((FOLDER / folder).glob("*.metal"))[::STEP]
    with Worker() as worker:
        answers = {path.stem: worker.ask(path, "checked") for path in files}
    assert not {name: text for name, text in answers.items() if text != "as expected"}


@pytest.mark.skipif(sys.platform != "linux", reason="copies of a process, /proc")
@pytest.mark.parametrize(
    "arguments", [("damage", "1" if STEP == 1 else "301"), ("flat", "0.06", "checked")]
)
def test_caches_heal_and_memory_stays(arguments: tuple[str, ...]) -> None:
    """In a process of its own: it makes copies of itself, and looks at its memory."""
    part, *options = arguments
    done = subprocess.run(
        [sys.executable, "-m", f"tests.attack.{part}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
