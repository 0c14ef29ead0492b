"""Variables that are read before they are set are found, vectors and structs too; no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import anymetal

SOURCE = Path(__file__).parent / "locals.metal"
KERNELS = re.findall(r"^KERNEL\((\w+)\)", SOURCE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def library() -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(SOURCE.read_text(), name=str(SOURCE))


@pytest.mark.parametrize("name", KERNELS)
def test_unset_locals(library: anymetal.ShaderLibrary, name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(128)
    for count in (1, 3):
        with anymetal.check(outputs=()) as report:
            getattr(library, name)(x, x, torch.zeros(64), count, threads=32, group_size=32)
        if name.startswith("wrong"):
            assert {finding.kind for finding in report} == {"uninitialised"}, report.findings
            (finding,) = {f.message: f for f in report.errors}.values()
            assert "of thread" in finding.message
            assert "initialiser" in finding.hint
        else:
            assert not report.findings, report.findings


def test_there_are_wrong_and_right_ones() -> None:
    assert {name.partition("_")[0] for name in KERNELS} == {"wrong", "right"}
