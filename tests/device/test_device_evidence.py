"""The op_db survey and the benchmark run, on a part of what they do."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from anymetal.cli.operators import chosen_operators
from anymetal.evidence.health import Plan, examine, exercises
from anymetal.ops.declare import OPERATORS

ROOT = Path(__file__).parent.parent.parent


def load(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that is not part of the package."""
    place = ROOT / path
    monkeypatch.syspath_prepend(str(place.parent))
    spec = importlib.util.spec_from_file_location(f"{place.parent.name}_{place.stem}", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def op_db(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("conformance/op_db.py", monkeypatch)


@pytest.mark.filterwarnings("ignore")
def test_operator_samples_agree_with_the_cpu(op_db: ModuleType) -> None:
    found = op_db.survey(count=2, every=25)
    assert [o for o in found if o.verdict == "failed"] == []
    assert sum(o.verdict == "passed" for o in found) > 120
    assert all(o.reason for o in found if o.verdict == "skipped")


def test_survey_notices_a_wrong_result(op_db: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    original = op_db.run

    def wrong(operator: object, sample: object, device: str) -> object:
        result, leaves = original(operator, sample, device)
        return (result + 1e-2 if device == "mps" else result), leaves

    monkeypatch.setattr(op_db, "run", wrong)
    found = op_db.survey(count=1, only="^sigmoid$")
    assert {o.verdict for o in found if o.leg == "forward"} == {"failed"}


def test_copy_keeps_overlaps_and_gaps(op_db: ModuleType) -> None:
    base = torch.arange(6.0)
    overlapping = base.as_strided((3, 2), (1, 1), 2)
    copy = op_db.copied(overlapping, "mps")
    assert copy.stride() == (1, 1)
    assert torch.equal(copy.cpu(), overlapping)
    copy[0, 1] = 9
    assert copy[1, 0].item() == 9


def test_benchmark_measures_both_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = load("benchmarks/device.py", monkeypatch)
    cost = benchmark.measure(benchmark.Case("add", benchmark.add, 10), rounds=3)
    assert cost.factor > 0
    assert cost.to_json()["limit"] == 2.0


@pytest.mark.parametrize("name", ["silu", "embedding"])
def test_health_judges_mps_tensors(name: str, device: torch.device) -> None:
    """torch's opcheck refuses the device; that part runs on the CPU."""
    operator = chosen_operators([name])[0]
    health = examine(operator, Plan(device, 1))
    assert health.passed, health.findings
    assert health.opchecked
    assert health.checked


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_right_on_mps(name: str, device: torch.device) -> None:
    """One case of `ANYMETAL_DEVICE=1 anymetal health --device mps`; `make health` has all."""
    exercise = next(exercises(OPERATORS[name], Plan(device, cases=1)))
    assert exercise.judge_results().passed
    if exercise.operator.differentiable:
        assert exercise.judge_gradients().passed
