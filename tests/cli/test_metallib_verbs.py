"""The verbs that take a Metal file take a metallib as well."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from anymetal.cli.app import app

sys.path.insert(0, str(Path(__file__).parent.parent / "air"))
import modules

CALL = ("--arg", "float32[3,33]=random", "--arg", "float32[3]", "--arg", "33")
SHAPE = ("--threads", "192", "--group-size", "64")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("metallibs") / "kernels.metallib"
    unknown = modules.calls(
        "strange",
        "declare <4 x float> @air.invent(<4 x float>)",
        "%y = call <4 x float> @air.invent(<4 x float> %v)",
    )
    functions = (
        modules.function("row_mean", modules.ROW_MEAN),
        modules.function("scaled", modules.SCALED),
        modules.function("strange", unknown),
    )
    place.write_bytes(modules.metallib(*functions))
    return place


def test_kernels(file: Path) -> None:
    found = json.loads(run("kernels", file, "--kernel", "[rs]*[nd]", "--json").stdout)
    assert [kernel["name"] for kernel in found["kernels"]] == ["row_mean", "scaled"]
    assert [a["name"] for a in found["kernels"][1]["arguments"]] == ["x", "bias", "out", "i"]
    assert found["function_constants"] == [
        {"name": "scale", "index": 3, "type": "float"},
        {"name": "has_bias", "index": 7, "type": "bool"},
    ]
    assert "none of 3 kernels" in run("kernels", file, "--kernel", "no*").output


def test_lint_names_what_it_does_not_know(file: Path) -> None:
    result = run("lint", file)
    assert result.exit_code == 1
    assert "kernel 'strange' calls air.invent, which anymetal does not know" in result.output
    assert "2 of 3 kernels compile" in result.output


def test_check(file: Path) -> None:
    assert run("check", file, "--kernel", "row_mean", *CALL, *SHAPE).exit_code == 0
    short = ("--arg", "float32[3,33]=random", "--arg", "float32[2]", "--arg", "33")
    assert run("check", file, "--kernel", "row_mean", *short, *SHAPE).exit_code == 1
    missing = run("check", file, *CALL, *SHAPE)
    assert missing.exit_code == 2
    assert "pass --kernel, one of row_mean, scaled, strange" in missing.output


def test_profile_quotes_instructions(file: Path) -> None:
    result = run("profile", file, "--kernel", "row_mean", *CALL, *SHAPE)
    assert result.exit_code == 0, result.output
    assert "%value = load float, ptr addrspace(1) %from, align 4" in " ".join(result.output.split())


def test_several_inside(file: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.dylib"
    both.write_bytes(b"\xcf\xfa\xed\xfe" + 2 * file.read_bytes())
    assert "holds 2 metallibs; name one of them: 0: #0, 1: #1" in run("kernels", both).output
    assert "row_mean" in run("kernels", both, "--library", "1", "--kernel", "row_mean").output
