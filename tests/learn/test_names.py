"""Every public name has a docstring, code in docstrings runs, the references list all names."""

from __future__ import annotations

import inspect
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from tests.learn.blocks import ROOT, Block, blocks_of
from tests.learn.links import anchors
from tests.learn.running import Page
from tools.site import commands, names, operators

import anymetal
from anymetal.cli.app import app
from anymetal.ops.declare import OPERATORS

VERBS = Path(anymetal.__file__).parent / "cli" / "verbs"
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


def test_code_at_the_head_of_modules_runs(
    mps: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the virtual device, which one of them enables, there already."""
    monkeypatch.chdir(tmp_path)
    heads = {name: import_module(name).__doc__ or "" for name in names.MODULES}
    found = [block for name, text in heads.items() for block in blocks_of(text, Path(name))]
    assert len(found) >= 3
    for block in found:
        Page(tmp_path).step(block)


def test_reference_has_every_module() -> None:
    listed = {name for name in anymetal.__all__ if inspect.ismodule(getattr(anymetal, name))}
    assert {f"anymetal.{name}" for name in listed} <= set(names.MODULES)


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
    verbs = [path.stem for path in VERBS.glob("[!_]*.py")]
    assert len(verbs) > 10
    for verb in verbs:
        assert f"# anymetal {verb}\n" in pages[f"reference/commands/{verb}.md"]
    assert "`--threads N,N,N`" in pages["reference/commands/check.md"]


@pytest.mark.parametrize(("name", "example"), commands.EXAMPLES.items())
def test_calls_on_the_pages_of_commands_parse(
    name: str, example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernels").mkdir()
    page, _, heading = example["guide"].partition("#")
    assert not heading or heading in anchors(ROOT / "docs" / page)
    for call in example["calls"]:
        words = shlex.split(call)
        for word in words:
            if word.endswith((".py", ".metal")):
                Path(word).touch()
        command: Any = typer.main.get_command(app)
        context = None
        while hasattr(command, "get_command"):
            context = command.make_context(words[0], words[1:], parent=context)
            words = words[1:]
            command = command.get_command(context, words[0])
        command.make_context(words[0], words[1:], parent=context)  # raises for what it refuses
