"""`anymetal compile`: files go in, a bundle or the compiler's words come out."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from anymetal import load_library
from anymetal.cli.app import app

KERNEL = "kernel void twice(device int* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }"


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compile", *map(str, arguments)])
    return result.exit_code, result.output


def test_kernels_of_a_file_are_written_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "k.metal").write_text(f"#include <metal_stdlib>\n{KERNEL}")
    output = tmp_path / "k.bundle"
    status, said = run(tmp_path / "k.metal", "--target", "cuda-sm80", "-o", output)
    assert status == 0, said
    assert "1 kernels for cuda-sm80" in said
    assert dir(load_library(output)) == ["twice"]


def test_source_that_does_not_compile_leaves_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "k.metal").write_text("kernel void k(device int* x) { x[0] = y; }")
    status, said = run(tmp_path / "k.metal", "--target", "cuda-sm80", "-o", tmp_path / "b")
    assert status == 1
    assert "y" in said
    assert not (tmp_path / "b").exists()


def test_wrong_usage_is_named(tmp_path: Path) -> None:
    assert "expected cuda-sm90, cuda-sm80, cpu" in run("--target", "metal", "-o", tmp_path / "b")[1]
    assert "--operators" in run("--target", "cuda-sm80", "-o", tmp_path / "b")[1]
    (tmp_path / "k.metal").write_text(KERNEL)
    wrong = (tmp_path / "k.metal", "--target", "cuda-sm80", "-o", tmp_path / "b")
    assert "expected NAME=VALUE" in run(*wrong, "--constant", "n")[1]
    assert "--candidates are those of" in run(*wrong, "--candidates")[1]
    assert "expected X, X,Y" in run(*wrong, "--group-size", "64,64")[1]
