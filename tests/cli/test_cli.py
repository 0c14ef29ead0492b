"""The command: what each verb prints, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import anymetal
from anymetal import settings
from anymetal.cli.app import app
from anymetal.store import cache

GOOD = """
#include <metal_stdlib>
using namespace metal;
constant bool doubled [[function_constant(3)]];
kernel void fill(device float* out [[buffer(0)]], constant float4& value [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  threadgroup half tile[100];
  tile[i % 100] = half(value.x);
  out[i] = tile[i % 100];
}
template <typename T>
kernel void copy(device const T* x, device T* y, uint i [[thread_index_in_threadgroup]]) {
  y[i] = doubled ? T(2) * x[i] : x[i];
}
template [[host_name("copy_half")]] kernel void copy<half>(device const half*, device half*, uint);
template [[host_name("copy_float")]] kernel void copy<float>(
    device const float*, device float*, uint);
"""
WRONG = "#include <metal_stdlib>\nkernel void f(device float* out) {\n  out[0] = missing;\n}\n"
WRONG_INSTANCE = """
#include <metal_stdlib>
struct Pair { float a, b; };
template <typename T> kernel void f(device T* x) { x[0] = x[0] + T(1); }
template [[host_name("f_float")]] kernel void f<float>(device float*);
template [[host_name("f_pair")]] kernel void f<Pair>(device Pair*);
template [[host_name("f_int")]] kernel void f<int>(device int*);
"""
TOO_MUCH = """
#include <metal_stdlib>
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float tile[9000];
  tile[i] = x[i];
  x[i] = tile[i + 1];
}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "kernels.metal") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"anymetal {anymetal.__version__}\n"


def test_installed_script_starts_without_torch() -> None:
    code = "import sys, anymetal.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anymetal", "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout == f"anymetal {anymetal.__version__}\n"


# Each name in a fork of its own: what one imports is not there for the next.
_EACH_NAME_ALONE = """
import os, sys, anymetal
assert "torch" not in sys.modules
import torch
for name in anymetal.__all__:
    child = os.fork()
    if child == 0:
        os._exit(0 if hasattr(anymetal, name) else 1)
    assert os.waitpid(child, 0)[1] == 0, name
"""


def test_public_names_need_no_other_import() -> None:
    subprocess.run([sys.executable, "-c", _EACH_NAME_ALONE], check=True)


def test_help_lists_every_verb() -> None:
    text = run("--help").stdout
    for path in (Path(anymetal.__file__).parent / "cli" / "verbs").glob("[!_]*.py"):
        assert f" {path.stem} " in text


def test_help_lists_every_setting() -> None:
    text = run("--help").stdout
    for setting in settings.ALL:
        assert setting.variable in text


def test_kernels_table(write: Write) -> None:
    result = run("kernels", write(GOOD))
    assert result.exit_code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    assert ["fill", "out", "device float*", "buffer 0", "200 B"] in rows
    assert ["", "value", "constant float4&", "buffer 1", ""] in rows
    assert ["", "i", "uint", "thread_position_in_grid", ""] in rows
    assert ["copy_half", "x", "device const half*", "buffer 0", "0 B"] in rows
    assert "function constant 3: bool doubled" in result.stdout


def test_kernels_json(write: Write) -> None:
    data = json.loads(run("kernels", write(GOOD), "--json").stdout)
    by_name = {kernel["name"]: kernel for kernel in data["kernels"]}
    assert set(by_name) == {"fill", "copy_half", "copy_float"}
    assert by_name["fill"]["threadgroup_memory"] == 200
    assert by_name["fill"]["arguments"][1]["type"] == "float4"
    assert data["function_constants"] == [{"name": "doubled", "index": 3, "type": "bool"}]


def test_kernels_of_a_broken_file(write: Write) -> None:
    result = run("kernels", write(WRONG))
    assert result.exit_code == 1
    assert "kernels.metal:3:12: error:" in result.stdout


def test_lint_of_good_files(write: Write) -> None:
    result = run("lint", write(GOOD), write("constant int x = 1;", "none.metal"))
    assert result.exit_code == 0
    assert result.stdout == "2 of 2 files and 3 of 3 kernels compile\n"


def test_lint_shows_the_authors_line(write: Write) -> None:
    path = write(WRONG)
    result = run("lint", path, write(GOOD, "good.metal"))
    assert result.exit_code == 1
    assert f"{path}:3:12: error: use of undeclared identifier 'missing'" in result.stdout
    assert "  out[0] = missing;\n           ^" in result.stdout
    assert "1 of 2 files and 3 of 4 kernels compile" in result.stdout


def test_lint_json(write: Write) -> None:
    path = write(WRONG)
    result = run("lint", path, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["passed"] is False
    (report,) = data["files"]
    assert (report["kernels"], report["failed"]) == (1, ["f"])
    (found,) = report["diagnostics"]
    assert (found["file"], found["line"], found["column"]) == (str(path), 3, 12)
    assert found["severity"] == "error"
    assert found["message"] == "use of undeclared identifier 'missing'"


def test_lint_names_the_instances_that_fail(write: Write) -> None:
    data = json.loads(run("lint", write(WRONG_INSTANCE), "--json").stdout)
    (report,) = data["files"]
    assert (report["kernels"], report["failed"]) == (3, ["f_pair"])


def test_lint_finds_what_nobody_defines(write: Write) -> None:
    parameters = "(device float* x, uint i [[thread_position_in_grid]])"
    path = write(
        "#include <metal_stdlib>\nfloat ease(float a);\ntemplate <class T> T same(T a);\n"
        f"kernel void f{parameters} {{ x[i] = ease(x[i]); }}\n"
        f"kernel void g{parameters} {{ x[i] = same(x[i]); }}\n"
        f"kernel void h{parameters} {{ x[i] = 1; }}\n"
    )
    data = json.loads(run("lint", path, "--json").stdout)
    (report,) = data["files"]
    assert (report["kernels"], report["failed"]) == (3, ["f", "g"])
    assert [found["line"] for found in report["diagnostics"]] == [2, 3]


def test_lint_full_finds_broken_limits(write: Write) -> None:
    path = write(TOO_MUCH)
    result = run("lint", "--full", path)
    assert result.exit_code == 1
    assert "36000 bytes of threadgroup memory" in result.stdout
    assert "0 of 1 kernels compile" in result.stdout


def test_lint_full_of_a_good_file(write: Write) -> None:
    assert run("lint", "--full", write(GOOD)).exit_code == 0


def test_lint_options(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "answer.h").write_text("#define ANSWER 42\n")
    path = write(
        '#include "answer.h"\n#if MODE != 2 || !defined(FLAG) || FLAG != 1\n#error wrong\n#endif\n'
        "kernel void f(device int* out) { out[0] = ANSWER; }\n"
    )
    assert run("lint", path).exit_code == 1
    assert run("lint", path, "-I", tmp_path / "headers").exit_code == 1
    good = run("lint", path, "-I", tmp_path / "headers", "-D", "MODE=2", "-D", "FLAG")
    assert good.exit_code == 0
    project = tmp_path / "pyproject.toml"
    project.write_text(
        "[tool.anymetal]\ninclude_dirs = ['headers']\ndefines = {MODE = 3, FLAG = true}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run("lint", path).exit_code == 1
    assert run("lint", path, "-D", "MODE=2").exit_code == 0, "the command goes before the project"
    project.write_text("[tool.anymetal]\ndefines = 'MODE'\n")
    wrong = run("lint", path)
    assert wrong.exit_code == 2
    assert "defines is 'MODE': expected a table of macros" in " ".join(wrong.output.split())


def test_lint_finds_headers_beside_the_file(write: Write) -> None:
    write("#define ANSWER 42\n", "answer.h")
    path = write('#include "answer.h"\nkernel void f(device int* out) { out[0] = ANSWER; }\n')
    assert run("lint", path).exit_code == 0


@pytest.mark.parametrize(
    "arguments", [("-I", "no/such/place"), ("-D", "3=4"), ("--nonsense",), ("no_such.metal",)]
)
def test_wrong_usage(write: Write, arguments: tuple[str, ...]) -> None:
    assert run("lint", write(GOOD), *arguments).exit_code == 2


def test_cache_info_and_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    cache.default_store().put("executable", "ab" * 32, {}, bytes(2 * 1024 * 1024))
    text = run("cache", "info").stdout
    assert str(tmp_path / "cache") in text
    assert "2.0 MB of at most 512.0 MB" in text
    assert run("cache", "clear").stdout.startswith("removed 1 entries, 2.0 MB")
    assert cache.default_store().usage().entries == 0


BY_VALUE = """#include <metal_stdlib>
using namespace metal;
kernel void pair(array<device float*, 2> p [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  p[0][i] = p[1][i];
}
"""


def test_lint_refuses_what_a_call_refuses_and_says_the_remedy(write: Write) -> None:
    result = run("lint", write(BY_VALUE, "by_value.metal"))
    assert result.exit_code == 1
    assert "by_value.metal:3:42: error: invalid type 'array<float *, 2>'" in result.output
    assert "put the array into a structure that is passed as `constant S& name`" in result.output
    assert "0 of 1 kernels compile" in result.output


def test_lint_of_a_directory_with_warnings_sarif_and_annotations(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels" / "deep"
    folder.mkdir(parents=True)
    (folder / "by_value.metal").write_text(BY_VALUE)
    warns = GOOD.replace("using namespace metal;", "using namespace metal;\n#warning odd", 1)
    (tmp_path / "kernels" / "warns.metal").write_text(warns)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    sarif = tmp_path / "lint.sarif"
    result = run("lint", tmp_path / "kernels", "--sarif", sarif)
    assert result.exit_code == 1
    assert "1 of 2 files" in result.output
    (log,) = json.loads(sarif.read_text())["runs"]
    assert {one["level"] for one in log["results"]} >= {"error", "warning", "note"}
    assert "warns.metal:4:2: warning: odd\n#warning odd\n ^" in result.output
    place = log["results"][0]["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == 3
    assert "::error file=" in result.output
    assert "::notice file=" in result.output
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("lint", empty).exit_code == 2
