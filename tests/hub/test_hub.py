"""Kernel projects of the Hub: what their build.toml lists is compiled, called and checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import anymetal
from anymetal import hub
from anymetal.cli.app import app
from anymetal.errors import BuildFileError

PROJECT = Path(__file__).parent / "project"


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, " ".join(result.output.split())


def test_kernels_of_all_metal_files() -> None:
    kernels = hub.load(PROJECT)
    assert sorted(dir(kernels)) == ["shift_float", "shift_half", "shift_reversed"]
    x = torch.randn(33)
    y = torch.empty_like(x)
    with anymetal.check() as report:
        kernels.shift_float(x, y)
        assert torch.equal(y, x + 3)
        assert not report.findings
        kernels.shift_reversed(x, y, 33)
    (finding,) = report.errors
    assert (finding.kind, finding.kernel) == ("out_of_bounds", "shift_reversed")
    assert finding.place.position is not None
    assert Path(finding.place.position.file) == PROJECT / "shift_metal" / "reversed.metal"
    with pytest.raises(AttributeError, match="shift has no kernel 'gone'; it has shift_float"):
        kernels.gone  # noqa: B018


def test_commands_find_the_headers() -> None:
    for target in (PROJECT, PROJECT / "build.toml"):
        assert run("lint", target) == (0, "2 of 2 files and 3 of 3 kernels compile")
    file = PROJECT / "shift_metal" / "shift.metal"
    words = ("--kernel", "shift_half", "--arg", "half[33]=random", "--arg", "half[33]")
    status, text = run("check", file, *words)
    assert status == 0, text


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('name = "shift"', "", r"\[general\] needs a name"),
        ('backend = "metal"', 'backend = "xpu"', "the backend 'metal'; there are cuda, xpu"),
        ('backend = "metal"', "backend = 1", r"\[kernel.shift_metal\] needs a backend"),
        ("shift_metal/shift.metal", "gone.metal", "src has 'gone.metal': no such file"),
        ('["include"]', '["gone"]', "include has 'gone': no such folder"),
        ('["include"]', '"include"', "include is 'include': expected a list of paths"),
        ("[general]", "[general", "not valid TOML"),
    ],
)
def test_mistake_names_the_file_and_the_key(
    before: str, after: str, words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    file = folder / "build.toml"
    file.write_text(file.read_text().replace(before, after, 1))
    with pytest.raises(BuildFileError, match=f"build.toml: .*{words}"):
        hub.read_build(folder)
    assert run("lint", folder)[0] == 2


def test_folder_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(BuildFileError, match=r"build.toml: cannot be read: No such file"):
        hub.load(tmp_path)
