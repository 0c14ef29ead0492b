"""What `anymetal lint` says of text that compiles, and the hook that pre-commit runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from pre_commit.clientlib import load_manifest
from typer.testing import CliRunner

from anymetal.cli.app import app

HOOKS = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"
DOUBTFUL = """#include <metal_stdlib>
using namespace metal;
template <typename T>
kernel void mean(device const T* x, device T* y, constant uint& n,
                 uint i [[thread_position_in_grid]]) {
  T sum;
  for (uint k = 0; k < n; ++k) sum += x[k];
  if (n = 0) sum == 1;
  y[i] = sum;
}
template [[host_name("mean_float")]] kernel void mean<float>(
    device const float*, device float*, constant uint&, uint);
"""
GOOD = """kernel void fill(device float* y, uint i [[thread_position_in_grid]]) { y[i] = 1; }
"""


def test_lint_prints_the_compilers_warnings_with_remedies(tmp_path: Path) -> None:
    path = tmp_path / "mean.metal"
    path.write_text(DOUBTFUL.replace("if (n = 0)", "uint m; if (m = n)"))
    result = CliRunner().invoke(app, ["lint", str(path), "--sarif", str(tmp_path / "found.sarif")])
    assert result.exit_code == 0  # they are warnings
    assert f"{path}:7:32: warning: variable 'sum' is uninitialized when used here" in result.stdout
    assert f"{path}:6:8: note: initialize the variable 'sum' to silence this" in result.stdout
    assert "warning: using the result of an assignment as a condition" in result.stdout
    assert "note: use '==' to turn this assignment into an equality comparison" in result.stdout
    assert "warning: equality comparison result unused" in result.stdout
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert "warning" in {found["level"] for found in run["results"]}


def run_hook(repository: Path, hook: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """pre-commit with the hook over all files of a repository, the package as it is here."""
    words = [sys.executable, "-m", *shlex.split(hook["entry"])]
    hook = {**hook, "entry": shlex.join(words), "language": "system"}
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    (repository / "config.json").write_text(json.dumps(config))  # JSON is YAML
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--config", "config.json"],
        cwd=repository,
        env={**os.environ, "PRE_COMMIT_HOME": str(repository / ".kept")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pre_commit_hook(tmp_path: Path) -> None:
    (hook,) = load_manifest(str(HOOKS))  # pre-commit's own reader, which validates
    assert hook["id"] == "anymetal-lint"
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (tmp_path / "good.metal").write_text(GOOD)
    (tmp_path / "bad.metal").write_text(GOOD.replace("= 1", "= missing"))
    (tmp_path / "readme.txt").write_text("not a kernel\n")
    subprocess.run([*git, "add", "."], check=True)
    done = run_hook(tmp_path, hook)
    assert done.returncode == 1
    assert "bad.metal:1:80: error: use of undeclared identifier 'missing'" in done.stdout
    assert "1 of 2 files and 1 of 2 kernels compile" in done.stdout
