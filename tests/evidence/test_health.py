"""What `health` sees in an operator that is right, and in one that is not."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from anymetal.evidence import accuracy, health_page
from anymetal.evidence.examiners import examine_all
from anymetal.evidence.health import Health, Plan, compare_engines, examine, passed
from anymetal.evidence.machine import describe
from anymetal.ops.declare import OPERATORS

CPU = torch.device("cpu")


def look(sample: ModuleType, **options: bool | int) -> Health:
    return examine(sample.square, Plan(CPU, **options))  # type: ignore[arg-type]


def test_right_operator(sample: ModuleType) -> None:
    health = look(sample)
    assert health.passed, health.findings
    assert set(health.results) == set(health.gradients) == {"fp32", "fp16", "bf16"}
    assert (health.cases, health.checked, health.opchecked) == (5, 1, True)
    judgement = health.worst_result("fp16")
    assert judgement is not None and judgement.in_torch_errors == pytest.approx(1.0, abs=0.5)


def test_gradient_operator_by_itself(sample: ModuleType) -> None:
    health = examine(sample.square_backward, Plan(CPU))
    assert health.passed, health.findings
    assert not health.gradients


def test_wrong_numbers(sample: ModuleType) -> None:
    sample.Mistakes.added = 0.1
    health = look(sample, opcheck=False, checker=False)
    assert not health.passed
    assert {finding.part for finding in health.findings} == {"results"}
    assert "error" in health.findings[0].message


def test_access_out_of_bounds(sample: ModuleType) -> None:
    sample.Mistakes.out_of_bounds = True
    found = look(sample, cases=1, opcheck=False).findings_of("checker")
    assert found and "out_of_bounds" in found[0].message


def test_exception_is_a_finding(sample: ModuleType) -> None:
    sample.Mistakes.raises = "no such luck"
    health = look(sample, cases=1)
    assert {finding.part for finding in health.findings} == {
        "results",
        "gradients",
        "checker",
        "opcheck",
    }
    assert all("no such luck" in finding.message for finding in health.findings[:2])


def test_missing_gradient(sample: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def detached(*args: torch.Tensor) -> torch.Tensor:
        return args[0].detach() ** 2

    monkeypatch.setattr(type(sample.square), "__call__", lambda self, *args: detached(*args))
    found = look(sample, cases=1, opcheck=False, checker=False).findings_of("gradients")
    assert found and "no gradient for tensor argument 0" in found[0].message


def test_nothing_examined_is_no_pass() -> None:
    assert not passed([])
    assert not Health("empty").passed


def test_engines_agree_with_themselves(sample: ModuleType) -> None:
    compared = compare_engines(sample.square, Plan(CPU, cases=2))
    assert len(compared) == 6
    assert all(judgement.error == judgement.torch_error for _, judgement in compared)


def test_page_shows_everything(sample: ModuleType) -> None:
    good = look(sample, cases=1, opcheck=False, checker=False)
    sample.Mistakes.added = 0.1
    bad = look(sample, cases=1, opcheck=False, checker=False)
    page = health_page.page([good, bad], describe(CPU), 1.0)
    assert "1 of 2 operators pass" in page
    assert "What is wrong" in page and page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in page


def test_accuracy_table(sample: ModuleType) -> None:
    text = accuracy.document([look(sample, opcheck=False, checker=False)], describe(CPU))
    row = next(line for line in text.splitlines() if line.startswith("| sample_square"))
    assert row.count("(") == 6
    sample.Mistakes.added = float("inf")
    text = accuracy.document([look(sample, opcheck=False, checker=False)], describe(CPU))
    assert "| wrong |" in text


def test_few_operators_are_examined_in_this_process(sample: ModuleType) -> None:
    few = list(examine_all([sample.square], Plan(CPU, cases=1, opcheck=False, checker=False)))
    assert [health.operator for health in few] == ["sample_square"]


def test_processes_examine_the_operators_of_the_package() -> None:
    names = ["fill", "silu", "silu_backward", "sigmoid", "sigmoid_backward", "relu_squared"]
    plan = Plan(CPU, cases=1, opcheck=False, checker=False)
    found = list(examine_all([OPERATORS[name] for name in names], plan))
    assert [health.operator for health in found] == names
    assert all(health.passed for health in found), found
