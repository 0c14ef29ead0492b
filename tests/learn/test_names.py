"""Every public name has a docstring, code in docstrings runs, the references list all names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.learn.blocks import Block, blocks_of
from tests.learn.running import Page
from tools.site import commands, names, operators

from anymetal import device, optim, overrides
from anymetal.ops.declare import OPERATORS

NAMES = names.public_names()


def blocks() -> list[Block]:
    found = []
    for name in NAMES:
        found += blocks_of(name.text, Path(f"docstring of {name.qualified}"))
    return found


def test_every_public_name_has_a_docstring() -> None:
    assert len(NAMES) > 200
    assert [name.qualified for name in NAMES if not name.text.strip()] == []


def test_code_in_docstrings_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    found = blocks()
    assert found
    for block in found:
        Page(tmp_path).step(block)


MODULES = (device, optim, overrides)


def test_code_at_the_head_of_modules_runs(tmp_path: Path) -> None:
    """One after the other in one process of their own, which has the virtual device from then."""
    texts = [
        block.text
        for module in MODULES
        for block in blocks_of(module.__doc__ or "", Path(module.__name__))
    ]
    assert len(texts) == len(MODULES)
    subprocess.run([sys.executable, "-c", "\n".join(texts)], check=True, cwd=tmp_path)


def test_reference_has_every_name() -> None:
    pages = names.pages()
    for name in NAMES:
        assert f"# `{name.name}`\n" in pages[f"reference/api/{name.module}.md"], name


def test_reference_has_every_operator() -> None:
    text = "".join(operators.pages().values())
    for name in OPERATORS:
        assert f"## {name}\n" in text and f"anymetal::{name}(" in text, name


def test_reference_has_every_command() -> None:
    pages = commands.pages()
    for verb in ("check", "run", "lint", "kernels", "bench", "tune", "health", "cache"):
        assert f"# anymetal {verb}\n" in pages[f"reference/commands/{verb}.md"]
    assert "--strict" in pages["reference/commands/check.md"]
