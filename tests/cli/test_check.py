"""`anymetal check`: programs and single kernels, what is printed and written, the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from anymetal.cli.app import app
from anymetal.cli.kernel_arguments import parse_argument, parse_arguments, parse_sizes

SHIFT = """#include <metal_stdlib>
using namespace metal;
kernel void shift(device float* out, constant uint& by, uint i [[thread_position_in_grid]]) {
  out[i + by] = 1.0f;
}
"""
SCAN = """#include <metal_stdlib>
using namespace metal;
constant bool exclusive [[function_constant(0)]];
constant int2 more [[function_constant(1)]];
kernel void first(device const half* x, device half* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
kernel void totals(device const float* x, device float* y,
                   threadgroup float* tile [[threadgroup(0)]],
                   uint2 at [[thread_position_in_grid]], uint i [[thread_index_in_threadgroup]]) {
  tile[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = exclusive ? tile[i] : tile[i] + SCALE * more.y;
}
"""
PROGRAM = f'''"""A program whose first argument shifts an index."""
import sys
import torch
import anymetal
import beside

SOURCE = """{SHIFT}"""

if __name__ == "__main__":
    print("program", sys.argv[1:], beside.HERE)
    anymetal.compile_shader(SOURCE, name="shift.metal").shift(torch.zeros(33), int(sys.argv[1]))
    exec(sys.argv[2] if len(sys.argv) > 2 else "")
'''


@pytest.fixture(autouse=True)
def outside_of_a_workflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> str:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "beside.py").write_text("HERE = 'beside'\n")
    (folder / "program.py").write_text(PROGRAM)
    return str(folder / "program.py")


@pytest.fixture
def shift(tmp_path: Path) -> str:
    (tmp_path / "shift.metal").write_text(SHIFT)
    return "shift.metal"


@pytest.fixture
def scan(tmp_path: Path) -> str:
    (tmp_path / "scan.metal").write_text(SCAN)
    return "scan.metal"


def check(*words: str) -> Result:
    return CliRunner().invoke(app, ["check", *words])


def test_program_clean(program: str) -> None:
    before = list(sys.path), list(sys.argv), os.environ.get("ANYMETAL_CHECK")
    result = check(program, "0")
    assert result.exit_code == 0, result.output
    assert "program ['0'] beside" in result.output
    assert result.output.endswith("anymetal check: 1 kernel, 1 launch, nothing found\n")
    assert before == (sys.path, sys.argv, os.environ.get("ANYMETAL_CHECK"))


def test_program_with_an_error(program: str) -> None:
    result = check(program, "1")
    assert result.exit_code == 1
    assert "error[out_of_bounds] in shift: " in result.output
    assert "shift.metal:4:" in result.output
    assert "out[i + by] = 1.0f;" in result.output


def test_program_keeps_options_behind_it(program: str) -> None:
    result = check("--strict", program, "0", "pass", "--steps=3", "--strict", "--json", "x", "-h")
    assert result.exit_code == 0
    assert "['0', 'pass', '--steps=3', '--strict', '--json', 'x', '-h']" in result.output
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("ending", "status", "words"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('no luck')", 1, "no luck"),
        ("raise KeyboardInterrupt", 130, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_program_keeps_its_own_status(program: str, ending: str, status: int, words: str) -> None:
    result = check(program, "0", ending)
    assert result.exit_code == status
    assert words in result.output
    assert "anymetal check: 1 kernel" in result.output


def test_findings_win_over_the_programs_status(program: str) -> None:
    assert check(program, "1", "sys.exit(3)").exit_code == 1


def test_trace_starts_in_the_program(program: str) -> None:
    output = check(program, "0", "1 / 0").output
    trace = output[output.index("Traceback") :].splitlines()
    assert "program.py" in trace[1]
    assert "runpy" not in output


def test_program_in_a_process_of_its_own(program: str) -> None:
    """As it is used: stdout in a pipe, children of the program told to check as well."""
    ending = "import os; print('child sees', os.environ['ANYMETAL_CHECK'])"
    words = [sys.executable, "-c", "from anymetal.cli import main; main()", "check", program]
    done = subprocess.run([*words, "1", ending], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "child sees 1" in done.stdout
    assert "\x1b" not in done.stdout
    assert "error[out_of_bounds]" in done.stdout
    assert done.stderr == ""


def test_program_and_kernel_options_do_not_mix(program: str) -> None:
    result = check("--kernel", "shift", program, "0")
    assert result.exit_code == 2
    assert ".metal file" in result.output


def test_kernel_clean_and_wrong(shift: str) -> None:
    words = ["--kernel", "shift", "--arg", "float32[100]", "--threads", "100", "--group-size", "32"]
    assert check(shift, *words, "--arg", "0").exit_code == 0
    result = check(shift, *words, "--arg", "1")
    assert result.exit_code == 1
    assert "shift.metal:4:" in result.output
    assert "thread 3 of threadgroup 3" in result.output


def test_kernel_is_found_when_it_is_the_only_one(shift: str, scan: str) -> None:
    assert check(shift, "--arg", "float[33]", "--arg", "0").exit_code == 0
    result = check(scan, "--arg", "half[33]", "-D", "SCALE=1")
    assert result.exit_code == 2
    assert "first, totals" in " ".join(result.output.split())


def test_kernel_with_everything(scan: str) -> None:
    words = [
        *["--arg", "float[8,8]=random", "--arg", "float[64]", "--memory", "0=256"],
        *["--threads", "8,8", "--group-size", "8x8", "-D", "SCALE=2.0f", "--output", "1"],
        *["--constant", "more=[1, -2]"],
    ]
    for constant in ("exclusive=true", "0=false"):
        result = check(scan, "--kernel", "totals", *words, "--constant", constant)
        assert result.exit_code == 0, result.output


def test_output_left_out_is_an_error(shift: str) -> None:
    words = ["--arg", "float32[100]", "--arg", "0", "--threads", "64"]
    assert check(shift, *words).exit_code == 0
    assert check(shift, *words, "--strict").exit_code == 1
    result = check(shift, *words, "--output", "0")
    assert result.exit_code == 1
    assert "error[unwritten_output]" in result.output


def test_nan_is_looked_for_on_request(tmp_path: Path) -> None:
    head, _ = SHIFT.split("{\n")
    (tmp_path / "root.metal").write_text(head + "{\n  out[i] = sqrt(-1.0f - i);\n}\n")
    words = ["root.metal", "--arg", "float32[33]", "--arg", "0"]
    assert check(*words).exit_code == 0
    result = check(*words, "--nan")
    assert result.exit_code == 1
    assert "error[nan] in shift" in result.output


def test_files_are_written(shift: str, tmp_path: Path) -> None:
    files = ["--json", "found.json", "--sarif", "found.sarif", "--junit", "found.xml"]
    assert check(shift, "--arg", "float32[33]", "--arg", "1", *files).exit_code == 1
    findings = json.loads((tmp_path / "found.json").read_text())["findings"]
    assert [found["kind"] for found in findings] == ["out_of_bounds", "unwritten_output"]
    assert (findings[0]["file"], findings[0]["line"]) == ("shift.metal", 4)
    log = json.loads((tmp_path / "found.sarif").read_text())
    assert [result["level"] for result in log["runs"][0]["results"]] == ["error", "warning"]
    root = ElementTree.parse(tmp_path / "found.xml").getroot()
    assert (root.attrib["tests"], root.attrib["failures"]) == ("2", "1")


def test_json_to_stdout_is_alone_there(shift: str) -> None:
    result = check(shift, "--arg", "float32[33]", "--arg", "1", "--json", "-")
    assert json.loads(result.stdout)["summary"]["errors"] == 1
    assert "error[out_of_bounds]" in result.stderr


def test_annotations_in_a_workflow(shift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = check(shift, "--arg", "float32[33]", "--arg", "1")
    assert "\n::error file=shift.metal,line=4,col=" in result.output


def test_comment_silences_a_finding(tmp_path: Path) -> None:
    text = SHIFT.replace("  out[i", "  // anymetal: allow(out_of_bounds) a test\n  out[i")
    (tmp_path / "shift.metal").write_text(text)
    result = check("shift.metal", "--arg", "float32[33]", "--arg", "1")
    assert result.exit_code == 0
    assert "1 silenced" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kernel", "nothing", "--arg", "float32[8]"], "The source has: shift"),
        (["--arg", "float32[8]"], "'by' (buffer 1)"),
        (["--arg", "float32[8]", "--arg", "many"], "expected a number"),
        (["--arg", "float33[8]"], "no type float33"),
        (["--arg", "float32[8]=noise"], "no filling noise"),
        (["--arg", "none.npy"], "no such file"),
        (["--arg", "7", "--arg", "7", "--output", "1"], "no tensor"),
        (["--arg", "float32[8]", "--arg", "0", "--threads", "1,2,3,4"], "1 to 3 numbers"),
        (["--constant", "x"], "NAME=VALUE"),
        (["--constant", "x=[1,two]"], "'two' is no number"),
        (["word"], "--arg"),
    ],
)
def test_wrong_words_are_explained(shift: str, words: list[str], message: str) -> None:
    result = check(shift, *words)
    assert result.exit_code == 2, result.output
    # typer draws a box around its messages.
    assert message.replace(" ", "") in "".join(result.output.replace("│", "").split())


def test_source_that_does_not_compile(tmp_path: Path) -> None:
    (tmp_path / "broken.metal").write_text("kernel void k(device float* out) { out[0] = nothing; }")
    result = check("broken.metal", "--arg", "float32[8]")
    assert result.exit_code == 2
    assert "broken.metal:1:" in result.output


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("7", 7),
        ("-7", -7),
        ("0x10", 16),
        ("3.5", 3.5),
        ("1e-3", 0.001),
        ("true", True),
        ("[1,2,3]", [1, 2, 3]),
        ("[1, 2.5]", [1.0, 2.5]),
    ],
)
def test_argument_number(word: str, expected: object) -> None:
    value = parse_argument(word, torch.Generator())
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("float32[3]", torch.zeros(3)),
        ("half[2,2]=ones", torch.ones(2, 2, dtype=torch.float16)),
        ("int32[4]=arange", torch.arange(4, dtype=torch.int32)),
        ("uint[2x3]=7", torch.full((2, 3), 7, dtype=torch.uint32)),
        ("bfloat[]=0.5", torch.tensor(0.5, dtype=torch.bfloat16)),
        ("float[0]", torch.zeros(0)),
        ("float[2]=-inf", torch.full((2,), float("-inf"))),
    ],
)
def test_argument_tensor(word: str, expected: torch.Tensor) -> None:
    value = parse_argument(word, torch.Generator())
    assert isinstance(value, torch.Tensor)
    assert value.dtype == expected.dtype
    assert torch.equal(value, expected)


def test_argument_random_depends_on_the_seed() -> None:
    words = ["float32[100]=random", "uint8[100]=random", "bool[100]=random"]
    one, two = parse_arguments(words, 0), parse_arguments(words, 0)
    other = parse_arguments(words, 1)
    for first, second, third in zip(one, two, other, strict=True):
        assert isinstance(first, torch.Tensor)
        assert torch.equal(first, second)  # type: ignore[arg-type]
        assert not torch.equal(first, third)  # type: ignore[arg-type]
        assert len(first.unique()) > 1


def test_argument_saved_by_numpy(tmp_path: Path) -> None:
    numpy.save(tmp_path / "x.npy", numpy.arange(6, dtype=numpy.float32).reshape(2, 3))
    value = parse_argument("x.npy", torch.Generator())
    assert isinstance(value, torch.Tensor)
    assert value.shape == (2, 3)


def test_sizes() -> None:
    assert parse_sizes("--threads", "32x8,2") == (32, 8, 2)
    with pytest.raises(typer.BadParameter):
        parse_sizes("--threads", "-1")


def test_program_without_a_launch_has_a_status_of_its_own(tmp_path: Path) -> None:
    Path("idle.py").write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
    assert check("idle.py", "0").exit_code == 5
    assert check("idle.py", "3").exit_code == 3
    assert "no kernel was launched" in check("idle.py", "0").output


def test_module_runs_as_python_would(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(program).parent)
    result = check("-m", "program", "1", "pass", "-x")
    assert result.exit_code == 1
    assert "program ['1', 'pass', '-x'] beside" in result.output
    assert "error[out_of_bounds] in shift" in result.output
    result = check("-m", "no_such_module")
    assert result.exit_code == 1
    assert "No module named no_such_module" in result.output


def test_severity_from_the_command_line_and_the_project(program: str, tmp_path: Path) -> None:
    assert check("--severity", "out_of_bounds=warning", program, "1").exit_code == 0
    (tmp_path / "pyproject.toml").write_text(
        "[tool.anymetal.severity]\nout_of_bounds = 'off'\nunwritten_output = 'error'\n"
    )
    result = check(program, "1")
    assert result.exit_code == 1
    assert "error[unwritten_output]" in result.output
    assert "out_of_bounds" not in result.output
    assert check("--severity", "unwritten_output=off", program, "1").exit_code == 0
    result = check("--severity", "unwriten=off", program, "1")
    assert result.exit_code == 2
    assert "no kind" in result.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import torch\nprint(torch.backends.mps.is_available())\n", True),
        ("import torch\ntorch.zeros(3, device='mps')\n", True),
        ("print('mps')\n", False),
    ],
)
def test_program_that_misses_mps_is_told(text: str, told: bool) -> None:
    Path("wants.py").write_text(text)
    assert ("anymetal check --mps" in check("wants.py").output) == told


def test_run_with_check_has_the_device(program: str) -> None:
    text = Path(program).read_text().replace("torch.zeros(33)", "torch.zeros(33, device='mps')")
    Path(program).write_text(text)
    words = ["run", "--check", "-m", "program", "1"]
    finished = subprocess.run(
        [sys.executable, "-m", "anymetal", *words],
        cwd=Path(program).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished.stderr
    assert "program ['1'] beside" in finished.stdout
    assert "error[out_of_bounds] in shift" in finished.stdout
