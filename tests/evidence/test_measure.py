"""Rows of a benchmark: times only for what is right, traffic, verdicts, history and plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch

from anymetal.evidence import history, svg
from anymetal.evidence.exercise import Exercise
from anymetal.evidence.machine import describe
from anymetal.evidence.measure import (
    BACKWARD,
    FORWARD,
    NAIVE,
    OURS,
    TORCH,
    Effort,
    Row,
    exercises,
    measure_row,
    measure_rows,
)
from anymetal.evidence.timing import Times

CPU = torch.device("cpu")
QUICK = Effort(seconds=0.01)


def exercise(sample: ModuleType, number: int = 0) -> Exercise:
    return Exercise(sample.square, torch.float32, sample.square.bench[number], CPU)


def test_rows_of_a_right_operator(sample: ModuleType) -> None:
    forward, backward = measure_rows(exercise(sample), QUICK)
    assert (forward.direction, backward.direction) == (FORWARD, BACKWARD)
    for row in (forward, backward):
        assert set(row.times) == {OURS, TORCH, NAIVE}
        assert row.right and row.ratio is not None and row.elements == 2048
        assert row.verdict in ("use ours", "use torch's", "even")
    assert (forward.least_bytes, forward.moved_bytes) == (2 * 8192, 2 * 8192)
    assert (backward.least_bytes, backward.moved_bytes) == (3 * 8192, 3 * 8192)
    assert forward.traffic == backward.traffic == 1.0
    assert forward.variant == "sample_square/fp32/elementwise/scalar"
    assert backward.variant == "sample_square_backward/fp32/elementwise/scalar"
    assert forward.launch == "2048/128"
    speed = forward.gigabytes_per_second
    assert speed == pytest.approx(16384 / forward.times[OURS].p50 / 1e3)


def test_wrong_result_has_no_time(sample: ModuleType) -> None:
    sample.Mistakes.added = 0.5
    row = measure_row(exercise(sample), FORWARD, QUICK)
    assert OURS not in row.times and TORCH in row.times
    assert row.ratio is None and row.gigabytes_per_second is None
    assert row.verdict == "wrong"


def test_result_that_becomes_wrong_has_no_time(sample: ModuleType) -> None:
    class Later:
        """Right until it has been called a few times, as a race may be."""

        calls = 0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * x + (self.calls > 4)

    sample.square.naive, kept = Later(), sample.square.naive
    try:
        row = measure_row(exercise(sample), FORWARD, Effort(seconds=0.01, traffic=False))
    finally:
        sample.square.naive = kept
    assert NAIVE not in row.times and not row.judgements[NAIVE].passed


def test_traffic_is_counted_only_on_request(sample: ModuleType) -> None:
    row = measure_row(exercise(sample), FORWARD, Effort(seconds=0.01, traffic=False))
    assert row.moved_bytes is None and row.traffic is None


def test_exercises_by_dtype_and_size(sample: ModuleType) -> None:
    found = list(exercises(sample.square, [torch.float16], CPU, 0))
    assert [(one.dtype_name, one.case.name) for one in found] == [
        ("fp16", "2048"),
        ("fp16", "8192"),
    ]
    assert len(list(exercises(sample.square, None, CPU, 1))) == 3


def _row(p50: float, torch_p50: float = 100.0, size: int = 64) -> Row:
    def times(median: float) -> Times:
        return Times(median, median, median, median * 0.99, median * 1.01, 25)

    from anymetal.evidence.judge import Judgement  # noqa: PLC0415

    fine = Judgement(1e-8, 1e-8, 1e-7, 1e-8)
    return Row(
        "f",
        "fp32",
        f"{size}",
        FORWARD,
        size,
        {OURS: times(p50), TORCH: times(torch_p50)},
        {OURS: fine, TORCH: fine},
        1000,
        1100,
        "f/fp32/looped/vec4",
        "64/32",
    )


@pytest.mark.parametrize(
    ("ours", "verdict"), [(50.0, "use ours"), (100.5, "even"), (150.0, "use torch's")]
)
def test_verdict(ours: float, verdict: str) -> None:
    assert _row(ours).verdict == verdict


def test_history_keeps_numbers_and_can_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.jsonl"
    history.append(path, [_row(200.0), _row(50.0, size=128)], describe(CPU))
    history.append(path, [_row(100.0)], describe(CPU))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 3
    assert lines[0]["microseconds"]["ours"]["p50"] == 200.0
    assert lines[0]["torch"] == torch.__version__ and lines[0]["verified"] is True
    assert lines[0]["traffic"] == 1.1
    earlier = history.read_times(path)
    changes = history.changes([_row(120.0), _row(50.5, size=128), _row(1.0, size=3)], earlier)
    assert [(change.key[2], change.verdict) for change in changes] == [
        ("64", "slower"),
        ("128", "same"),
    ]


def test_compare_reads_what_json_prints(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(history.as_json([_row(100.0)], describe(CPU)), indent=2))
    (change,) = history.changes([_row(80.0)], history.read_times(path))
    assert change.verdict == "faster" and change.ratio == pytest.approx(0.8)


@pytest.mark.parametrize("text", ["", "nonsense", '{"rows": [{"operator": "f"}]}', "[1, 2]"])
def test_compare_with_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"run\.json: no benchmark"):
        history.read_times(path)


def _texts(document: str) -> Sequence[str]:
    tree = ElementTree.fromstring(document)
    return [element.text or "" for element in tree.iter() if element.tag.endswith("}text")]


def test_line_plot_is_sound_svg() -> None:
    series = {"silu <fp32>": [(64.0, 0.5), (4096.0, 2.0)], "gelu": [(64.0, 1.0)]}
    texts = _texts(svg.lines("ratio & size", series, across="elements"))
    assert "ratio & size" in texts and "silu <fp32>: 0.5 to 2" in texts and "1" in texts


def test_bar_plot_is_sound_svg() -> None:
    document = svg.bars("errors", {"silu": {"fp32": 1.0, "bf16": 9.0}, "b": {}}, limit=2.0)
    texts = _texts(document)
    assert {"errors", "silu", "fp32", "bf16"} <= set(texts)
    assert document.count("<rect") == 4


def test_bandwidth_without_a_cost() -> None:
    row = replace(_row(10.0), least_bytes=None)
    assert row.gigabytes_per_second is None and row.traffic is None


def test_arithmetic_a_second() -> None:
    row = replace(_row(10.0), flops=5_000_000)
    assert row.gigaflops == pytest.approx(5_000_000 / row.times[OURS].p50 / 1e3)
    assert replace(row, flops=None).gigaflops is None
