"""How errors are measured and what passes."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch

from anymetal.evidence.exercise import Exercise
from anymetal.evidence.judge import Judgement, floor_of, judge, judge_ratios, relative_error, worst

EXACT = torch.tensor([1.0, -4.0, 2.0], dtype=torch.float64)


def test_error_is_relative_to_the_largest_value() -> None:
    assert relative_error((EXACT + 0.04).float(), EXACT) == pytest.approx(0.01, rel=1e-5)


@pytest.mark.parametrize(
    ("got", "exact", "right"),
    [
        ([1.0, math.inf], [1.0, math.inf], True),
        ([1.0, math.nan], [1.0, math.nan], True),
        ([1.0, math.nan], [1.0, math.inf], False),
        ([1.0, -math.inf], [1.0, math.inf], False),
        ([1.0, 3.0], [1.0, math.nan], False),
        ([1.0, math.nan], [1.0, 3.0], False),
        ([], [], True),
    ],
)
def test_infinities_and_nans_must_be_where_they_belong(
    got: list[float], exact: list[float], right: bool
) -> None:
    error = relative_error(torch.tensor(got), torch.tensor(exact, dtype=torch.float64))
    assert (error == 0.0) == right
    assert right or error == math.inf


def test_overflow_of_the_dtype_is_right() -> None:
    exact = torch.tensor([1.0, 1e6], dtype=torch.float64)
    assert relative_error(torch.tensor([1.0, math.inf]).half(), exact) == 0.0


def test_twice_torchs_error_passes_and_more_fails() -> None:
    torch_result = (EXACT * (1 + 1e-4)).float()
    assert judge((EXACT * (1 + 1.9e-4)).float(), torch_result, EXACT, torch.float32).passed
    assert not judge((EXACT * (1 + 2.2e-4)).float(), torch_result, EXACT, torch.float32).passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floor_passes_where_torch_is_exact(dtype: torch.dtype) -> None:
    exact = torch.ones(1, dtype=torch.float64)
    near = torch.ones(1).to(dtype) + torch.finfo(dtype).eps
    far = torch.ones(1).to(dtype) + 6 * torch.finfo(dtype).eps
    assert judge(near, exact.to(dtype), exact, dtype).passed
    assert not judge(far, exact.to(dtype), exact, dtype).passed
    assert floor_of(dtype) < 5 * torch.finfo(dtype).eps


def test_torchs_own_overflow_excuses_nobody() -> None:
    exact = torch.ones(1, dtype=torch.float64)
    broken = torch.full((1,), math.inf)
    assert not judge(torch.full((1,), 1.5), broken, exact, torch.float32).passed


def test_wrong_shapes_and_counts_are_faults() -> None:
    assert judge(EXACT[:2].float(), EXACT.float(), EXACT, torch.float32).fault
    assert judge([EXACT.float()] * 2, [EXACT.float()], [EXACT], torch.float32).fault


def test_worst_prefers_what_fails() -> None:
    small = Judgement(1e-3, 0.0, 1e-4, 1e-4)
    large = Judgement(5e-3, 4e-3, 1e-4, 1e-4)
    assert large.passed and not small.passed
    assert worst([large, small]) is small
    assert worst([]).passed


def test_ratios_pass_up_to_two_or_four_of_torchs() -> None:
    def judged(ours: list[float], theirs: list[float]) -> Judgement:
        return judge_ratios({"residual": torch.tensor(ours)}, {"residual": torch.tensor(theirs)})

    assert judged([1.9, 7.9], [0.1, 2.0]).passed
    assert not judged([2.1, 0.1], [0.5, 0.1]).passed
    assert not judged([0.1, 8.1], [5.0, 2.0]).passed  # of the same matrix, not of another
    assert not judged([math.nan], [9.0]).passed


def test_torch_is_asked_on_the_cpu_where_a_device_lacks_its_kernel(
    sample: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(x: torch.Tensor) -> torch.Tensor:
        if not x.is_cpu:
            raise NotImplementedError("no kernel")
        return x * x

    operator = sample.square
    monkeypatch.setattr(operator, "baseline", lacking)
    monkeypatch.setattr(Exercise, "exact_inputs", lambda _: ([torch.ones(1)], {}))
    monkeypatch.setattr(Exercise, "judged_results", lambda _, ours, theirs, exact: theirs.device)
    on_device = Exercise(operator, torch.float32, operator.cases[-1], torch.device("meta"))
    assert on_device.judge_results() == torch.device("cpu")
