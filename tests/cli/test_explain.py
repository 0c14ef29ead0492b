"""`anymetal kernels --explain`: which engine a kernel gets, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anymetal.cli.app import app

TWO_KERNELS = """
#include <metal_stdlib>
using namespace metal;
constant bool doubled [[function_constant(3)]];
typedef float (*Step)(float);
float half_of(float x) { return x * 0.5f; }
float twice(float x) { return x * 2.0f; }
float same(float x) { return x; }
kernel void plain(device float* x, uint i [[thread_position_in_grid]]) {
  x[i] = doubled ? x[i] * 2.0f : simd_sum(x[i]);
}
kernel void through_a_table(device float* x, uint i [[thread_position_in_grid]]) {
  Step steps[3] = {&half_of, &twice, &same};
  x[i] = steps[i % 3](x[i]);
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.metal"
    path.write_text(TWO_KERNELS)
    return path


def explained(file: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["kernels", str(file), "--explain", *options])


def rows_of(result: Result) -> list[list[str]]:
    lines = result.stdout.splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


def test_a_table_of_engines(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    result = explained(file)
    assert result.exit_code == 0
    plain, other = rows_of(result)
    assert plain == ["plain", "simdgroup", ""]
    assert other[:2] == ["through_a_table", "coroutine"]
    assert other[2].startswith("indirect call: ")


def test_json(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    plain, other = json.loads(explained(file, "--json").stdout)["kernels"]
    assert plain == {"name": "plain", "engine": "simdgroup", "why": ""}
    assert (other["name"], other["engine"]) == ("through_a_table", "coroutine")
    assert "indirect call" in other["why"]


def test_an_engine_chosen_by_hand(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", "coroutine")
    assert rows_of(explained(file)) == [
        ["plain", "coroutine", "ANYMETAL_ENGINE=coroutine"],
        ["through_a_table", "coroutine", "ANYMETAL_ENGINE=coroutine"],
    ]
    monkeypatch.setenv("ANYMETAL_ENGINE", "simdgroup")
    plain, other, *_ = rows_of(explained(file))
    assert plain[1] == "simdgroup"
    assert other[1] == "none"


def test_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.metal"
    path.write_text("#include <metal_stdlib>\nkernel void f(device float* x) {\n  x[0] = y;\n}\n")
    result = explained(path)
    assert result.exit_code == 1
    assert "broken.metal:3:10: error:" in result.stdout
