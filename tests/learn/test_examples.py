"""Every example ends well on the CPU and on the virtual device, and notices wrong kernels."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learn.blocks import ROOT

from anymetal.launch.call import PlainKernel
from anymetal.launch.checked_call import CheckedKernel

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# One trains a model of transformers, one builds an extension: tests/patch/test_patch_example.py and
# tests/extension/test_extension_example.py run them.
OWN_TESTS = {"language_model", "extension_patterns"}

of_each_example = pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in OWN_TESTS], ids=lambda path: path.stem
)


@pytest.fixture(autouse=True)
def as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)


def start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")


@of_each_example
def test_example_on_the_cpu(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    start(path, monkeypatch)


@of_each_example
def test_example_on_mps(path: Path, mps: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Mac: the virtual device says that it is there."""
    start(path, monkeypatch)


@of_each_example
def test_example_notices_kernels_that_do_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(self: Any, *arguments: Any, **keywords: Any) -> None:
        pass

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for kind in (PlainKernel, CheckedKernel):
        monkeypatch.setattr(kind, "call", nothing)
    # What ends a program with a status that is not 0.
    with pytest.raises((Exception, SystemExit)) as caught:
        start(path, monkeypatch)
    assert not isinstance(caught.value, SystemExit) or caught.value.code not in (0, None)


def test_there_are_enough_and_each_says_how_it_is_run() -> None:
    assert len(EXAMPLES) >= 15
    for path in EXAMPLES:
        assert f"examples/{path.name}" in path.read_text(), path.name
        assert path.name in (ROOT / "examples" / "README.md").read_text(), path.name
