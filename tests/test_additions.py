"""The table "to add X, touch Y" of CONTRIBUTING.md: each addition is made once, in a copy.

What a test cannot know is left out: the tests, kernels and documents that go with an addition.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anymetal

PACKAGE = Path(anymetal.__file__).parent

# Files that are added, and texts that are put in front of others in files that are there.
FILES = {
    "ops/scratch/__init__.py": """
from anymetal.ops.scratch.doubled import doubled

__all__ = ["doubled"]
""",
    "ops/scratch/doubled.py": """
import torch

from anymetal.ops.declare import Cost, operator
from anymetal.ops.declare.cases import random_case

Tensor = torch.Tensor


@operator(
    source="doubled.metal",
    reference=lambda x: x * 2,
    cases=[random_case((size,)) for size in (0, 33)],
    cost=lambda x: Cost(read=x.nbytes, write=x.nbytes),
)
def doubled(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@doubled.run
def _(y: Tensor, x: Tensor) -> None:
    doubled.kernel("doubled", x)(x.contiguous(), y, threads=x.numel(), group_size=64)


@doubled.gradient(
    name="doubled_backward", cost=lambda grad: Cost(read=grad.nbytes, write=grad.nbytes),
    cases=[random_case((size,)) for size in (0, 33)],
)
def doubled_backward(grad: Tensor) -> Tensor:
    return torch.empty_like(grad)


@doubled_backward.run
def _(dx: Tensor, grad: Tensor) -> None:
    doubled.kernel("doubled", grad)(grad.contiguous(), dx, threads=grad.numel(), group_size=64)
""",
    "ops/scratch/doubled.metal": """
#include "shared/types.h"
template <typename T>
kernel void doubled(device const T* x, device T* y, uint i [[thread_position_in_grid]]) {
  y[i] = T(twice(float(x[i])));
}
INSTANTIATE(doubled)
""",
    "cli/verbs/hello.py": '''
"""`anymetal hello`: say hello."""

import typer

from anymetal import settings

app = typer.Typer()


@app.command()
def hello() -> None:
    print("hello", settings.SCRATCH.value())
''',
    "engines/copycat.py": """
from anymetal.engines.cpu.threads.engine import ThreadEngine


class Copycat(ThreadEngine):
    name = "copycat"

    def compile(self, program, *, patient=False):
        executable = super().compile(program)
        executable.metadata["engine"] = self.name
        return executable
""",
}
EDITS = {
    "msl/include/metal_common": (
        "#pragma float_control(precise, on, push)",
        "namespace metal { inline float twice(float x) { return x + x; } }\n",
    ),
    "engines/registry.py": (
        "# In the order in which they are tried.\n",
        "from anymetal.engines.copycat import Copycat\n",
    ),
    "settings.py": ("ALL: tuple", 'SCRATCH = Setting("ANYMETAL_SCRATCH", flag, "0", "a sample")\n'),
    "checker/kinds.py": (
        '    Kind(\n        name="timeout",',
        '    Kind(name="scratch", about="launch", title="t", meaning="m", hint="Do not."),\n',
    ),
}
PROGRAM = """
import os, sys, torch, anymetal
from anymetal import ops
from anymetal.checker.kinds import KINDS
from anymetal.cli import main
from anymetal.ops.declare import OPERATORS

assert "scratch" in KINDS

x = torch.randn(33, requires_grad=True)
y = ops.doubled(x)  # its kernel calls the new function of Metal
y.sum().backward()
assert torch.equal(y, x * 2) and torch.equal(x.grad, torch.full((33,), 2.0))
assert {"doubled", "doubled_backward"} <= set(OPERATORS)

os.environ["ANYMETAL_ENGINE"] = "copycat"
text = "kernel void fill(device float* x, uint i [[thread_position_in_grid]]) { x[i] = 1; }"
kernel, z = anymetal.compile_shader(text).fill, torch.zeros(4)
kernel(z)
assert kernel.engine == "copycat" and z.tolist() == [1] * 4
sys.argv = ["anymetal", "hello"]
main()
"""


def test_additions_touch_what_contributing_says(tmp_path: Path) -> None:
    package = tmp_path / "anymetal"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(text.lstrip("\n"))
    for name, (behind, text) in EDITS.items():
        before = (package / name).read_text()
        assert before.count(behind) == 1, name
        (package / name).write_text(before.replace(behind, text + behind))
    registry, settings = package / "engines/registry.py", package / "settings.py"
    registry.write_text(
        registry.read_text().replace("(SimdgroupEngine(),", "(SimdgroupEngine(), Copycat(),")
    )
    settings.write_text(
        settings.read_text().replace("    POLICY,\n)", "    POLICY,\n    SCRATCH,\n)")
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "ANYMETAL_SCRATCH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "hello True\n"), done.stderr
