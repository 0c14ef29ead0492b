"""The GitHub Action: its script, run as a workflow would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml
from tests.learn.blocks import ROOT

PROGRAM = '''
import sys
import torch
import anymetal

lib = anymetal.compile_shader("""
kernel void one(device float* x, uint i [[thread_position_in_grid]]) { x[i] = 1; }
""")
lib.one(torch.zeros(33), threads=int(sys.argv[1]))
'''


def run(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = (step for step in action["runs"]["steps"] if step.get("name") == "Check")
    variables = {name: inputs.get(name.lower(), "") for name in step["env"]}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), **variables}
    environment["GITHUB_ACTIONS"] = "true"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_input_reaches_a_step() -> None:
    text = (ROOT / "action.yml").read_text()
    for name in yaml.safe_load(text)["inputs"]:
        assert f"inputs.{name}" in text, name


def test_check_finds_and_ends_with_its_status(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    wrong = run(tmp_path, program="program.py 40", sarif="out.sarif")
    assert wrong.returncode == 1, wrong.stderr
    assert "::error file=program.py" in wrong.stdout
    assert (tmp_path / "out.sarif").exists()


def test_nothing_to_do_is_an_error(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 2
