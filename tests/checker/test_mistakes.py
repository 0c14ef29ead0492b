"""Every mistake of mistakes.py is found, as what it is; about its right twin nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bad_kernel import FIXED, all_kernels
from mistakes import MISTAKES, UNUSUAL, Call, Mistake

import anymetal
from anymetal.checker.report import Report

HERE = Path(__file__).parent
SOURCE = HERE / "mistakes.metal"


@pytest.fixture(scope="module")
def library() -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(SOURCE.read_text(), name=str(SOURCE))


def checked(library: anymetal.ShaderLibrary, call: Call, *, raises: bool = False) -> Report:
    torch.manual_seed(0)
    options = dict(call.options)
    with anymetal.check(outputs=options.pop("outputs", None)) as report:
        kernel = getattr(library, call.kernel)
        if raises:
            with pytest.raises(RuntimeError):
                kernel(*call.make(), **options)
        else:
            kernel(*call.make(), **options)
    return report


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found_and_its_twin_is_silent(
    library: anymetal.ShaderLibrary, mistake: Mistake
) -> None:
    report = checked(library, mistake.wrong, raises=mistake.raises)
    of_kind = [finding for finding in report if finding.kind == mistake.kind]
    found = [finding for finding in of_kind if finding.severity == mistake.severity]
    assert found, report
    assert found == of_kind or mistake.kind in mistake.also, report
    assert mistake.words in found[0].message
    assert found[0].hint
    assert {finding.kind for finding in report} <= {mistake.kind, *mistake.also}, report
    right = checked(library, mistake.right)
    assert not right.findings, right


@pytest.mark.parametrize("call", UNUSUAL, ids=lambda call: call.kernel)
def test_unusual_call_is_silent(library: anymetal.ShaderLibrary, call: Call) -> None:
    report = checked(library, call)
    assert not report.findings, report


def test_unchecked_calls_take_what_torch_takes(library: anymetal.ShaderLibrary) -> None:
    """The mistakes around a kernel are found under a check; without one they run as they are."""
    for mistake in MISTAKES:
        if mistake.wrong.kernel in ("scale", "negate", "sizes") and not mistake.raises:
            options = {k: v for k, v in mistake.wrong.options.items() if k != "outputs"}
            getattr(library, mistake.wrong.kernel)(*mistake.wrong.make(), **options)


def test_there_are_eighty_mistakes_and_three_hundred_correct_kernels() -> None:
    """The correct ones run in the files of this folder and in tests/attack."""
    assert len(MISTAKES) >= 80
    fixed = [bad for bad in all_kernels() if bad.path.name.endswith(FIXED)]
    files = [*HERE.glob("correct_kernels/*.metal"), *HERE.parent.glob("attack/correct/*.metal")]
    right = (HERE / "locals.metal").read_text().count("KERNEL(right_")
    assert len(fixed) + len(files) + right + len(MISTAKES) + len(UNUSUAL) >= 300
