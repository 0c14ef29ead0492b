"""One defect at a time planted into correct kernels; a sample of what planted.py runs in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from bad_kernel import Argument, run_checked
from defects import Defect
from planted import LAUNCHES, Outcome, all_defects, judge, launch_of, sample, source, summary
from test_bad_kernels import describe

SEED = 20
SAMPLE = sample(all_defects(), 26, SEED)


def reference(kernel: str, arguments: list[Argument]) -> torch.Tensor:
    """What the last tensor of a launch should hold."""
    tensors = [a.double() for a in arguments if isinstance(a, torch.Tensor)]
    x = tensors[0]
    match kernel:
        case "reduce_rows" | "reduce_tree":
            return x.sum(1)
        case "softmax_rows":
            return torch.softmax(x, 1)
        case "transpose_tiles":
            return x.t()
        case "scan_blocks":
            return x.cumsum(0)
        case "matmul_tiles":
            return x @ tensors[1]
        case "histogram":
            return torch.bincount(x.long(), minlength=16)
        case "layer_norm":
            return torch.nn.functional.layer_norm(x, x.shape[1:], tensors[1], tensors[2])
        case "stencil":
            return torch.nn.functional.pad(x, (1, 1)).unfold(0, 3, 1).mean(1)
        case "rotate_lanes":
            return 2 * x.view(-1, 32).flip(1).view(-1, 2).flip(1).view(-1)
    raise ValueError(kernel)


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_correct_kernel_is_silent_and_right(kernel: str) -> None:
    for words in LAUNCHES[kernel]:
        launch = launch_of(kernel, source(kernel), words)
        arguments = launch.arguments()
        expected = reference(kernel, arguments)
        report = run_checked(launch, arguments)
        assert not report.findings, describe(report)
        result = [a for a in arguments if isinstance(a, torch.Tensor)][-1]
        torch.testing.assert_close(result.double(), expected.double(), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[list[Outcome]]:
    """Collects what became of the sample and prints the rate, past pytest's capture."""
    collected: list[Outcome] = []
    yield collected
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{summary(collected)}")


@pytest.mark.parametrize("defect", SAMPLE, ids=lambda defect: defect.name)
def test_planted_defect_is_found_or_explained(
    defect: Defect, outcomes: list[Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_TIME_LIMIT", "10")
    outcome = judge(defect)
    outcomes.append(outcome)
    assert outcome.verdict != "missed", outcome


def test_sample_has_every_operator() -> None:
    planted = Counter(defect.operator for defect in all_defects())
    assert set(planted) == {defect.operator for defect in SAMPLE}
    assert sum(planted.values()) > 300


@pytest.mark.parametrize("operator", ["drop barrier", "swap flag", "narrow barrier"])
def test_order_of_memory_has_no_excuse(operator: str) -> None:
    """Results say nothing about barriers: the engine's own schedule hides what is missing."""
    defect = next(d for d in all_defects(["rotate_lanes", "stencil"]) if d.operator == operator)
    assert judge(defect).verdict == "found"
