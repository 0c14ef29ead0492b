"""`anymetal compile`: files go in, a bundle or the compiler's words come out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from anymetal import load_library
from anymetal.cli.app import app
from anymetal.engines.cpu import bundled

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


@pytest.mark.skipif("cpu" not in bundled.targets(), reason="bundles of CPUs: Linux")
def test_values_of_constants_are_found_as_a_program_asks_for_them(tmp_path: Path) -> None:
    (tmp_path / "k.metal").write_text(
        """constant float by [[function_constant(0)]];
        constant int2 and_then [[function_constant(1)]];
        kernel void change(device float* x) { x[0] = x[0] * by + and_then.x - and_then.y; }"""
    )
    output = tmp_path / "k.bundle"
    constants = ("--constant", "by=2,0.5", "--constant", "and_then=[1,2],[30,4]")
    status, said = run(tmp_path / "k.metal", *constants, "--target", "cpu", "-o", output)
    assert status == 0, said
    library = load_library(output)
    for by in (2, 0.5):
        for pair in ((1, 2), (30, 4)):
            x = torch.tensor([8.0])
            library.specialize("change", {"by": by, 1: pair})(x, threads=1)
            assert x.item() == 8 * by + pair[0] - pair[1]


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
    assert "'seven' is no number" in run(*wrong, "--constant", "n=[1,seven]")[1]
    (tmp_path / "k.metal").write_text(f"constant int n [[function_constant(0)]];\n{KERNEL}")
    said = run(*wrong, "--constant", "n=0.5")[1]
    assert "'n' is a int, but its value is 0.5" in " ".join(said.replace("│", "").split())
    assert "--candidates are those of" in run(*wrong, "--candidates")[1]
    assert "expected X, X,Y" in run(*wrong, "--group-size", "64,64")[1]
