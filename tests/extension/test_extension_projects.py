"""New projects: their files, their own tests, and what is packaged of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import anymetal
from anymetal.cli.app import app
from anymetal.extension import scaffold
from anymetal.extension.project import read_project

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"


def command(*words: str, succeeds: bool = True) -> str:
    result = CliRunner().invoke(app, ["extension", *words])
    assert (result.exit_code == 0) == succeeds, result.output
    return result.output


def test_templates_are_those_that_are_promised() -> None:
    assert scaffold.names() == ["blit", "elementwise", "optimizer", "reduction", "two-phase"]


@pytest.mark.parametrize("template", scaffold.names())
def test_new_project_works_as_it_stands(tmp_path: Path, template: str) -> None:
    folder = tmp_path / "fresh"
    command("new", "fresh", "--template", template, "-o", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--metal-check", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "nothing found" in done.stdout


@pytest.mark.parametrize("template", scaffold.names())
def test_files_of_a_project_are_complete_and_clean(tmp_path: Path, template: str) -> None:
    files = scaffold.write("fresh", template, tmp_path)
    assert {"pyproject.toml", "csrc/fresh.mm", "fresh/kernels/fresh.metal"} <= set(files)
    text = (tmp_path / "csrc/fresh.mm").read_text()
    assert "TORCH_LIBRARY(fresh" in text and "TORCH_LIBRARY_IMPL(fresh, MPS" in text
    assert not any("{{name" in (tmp_path / path).read_text() for path in files)
    kernels = anymetal.compile_shader((tmp_path / "fresh/kernels/fresh.metal").read_text())
    assert dir(kernels)
    for words in (("check",), ("format", "--check", "--line-length", "100")):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "--isolated", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("new", "No-Name"), "no name of a package"),
        (("new", "fresh", "--template", "other"), "no template 'other': there are blit"),
        (("build", "/nowhere"), "is no extension"),
        (("wheel", "/nowhere"), "is no extension"),
    ],
)
def test_bad_word_is_named(words: tuple[str, ...], answer: str, tmp_path: Path) -> None:
    os.chdir(tmp_path)
    assert answer in command(*words, succeeds=False)


def test_new_project_takes_no_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert "not empty" in command("new", "fresh", "-o", str(tmp_path), succeeds=False)


def test_source_distribution_has_what_a_mac_needs(tmp_path: Path) -> None:
    (archive,) = command("wheel", str(EXAMPLE), "-o", str(tmp_path)).split()
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    needed = {"csrc/patterns.mm", "csrc/metal.h", "embed_kernels.py", "setup.py", "pyproject.toml"}
    assert {*needed, "patterns/kernels/patterns.metal", "patterns/__init__.py"} <= names


def test_layout_for_hugging_face(tmp_path: Path) -> None:
    command("wheel", str(EXAMPLE), "--hf", "-o", str(tmp_path))
    project = read_project(EXAMPLE)
    assert project.name == "patterns"
    description = (tmp_path / "build.toml").read_text()
    for line in ('name = "patterns"', 'backend = "metal"', '"patterns_metal/patterns.metal"'):
        assert line in description
    source = (tmp_path / "patterns_metal" / "patterns.mm").read_text()
    assert "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library)" in source
    assert "TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, MPS, library)" in source
    python = (tmp_path / "torch-ext" / "patterns" / "__init__.py").read_text()
    assert "from ._ops import ops as _ops" in python
    assert '@torch.library.register_fake(add_op_namespace_prefix("scale"))' in python
    assert "torch.ops.patterns" not in python and "_library" not in python


def test_the_example_and_the_templates_have_one_header() -> None:
    templates = Path(scaffold.__file__).parent / "templates"
    header = (templates / "common" / "csrc" / "metal.h").read_text()
    assert (EXAMPLE / "csrc" / "metal.h").read_text() == header
