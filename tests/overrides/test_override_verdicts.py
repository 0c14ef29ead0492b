"""Defaults come from files of measured verdicts, and what was not measured is off."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from anymetal import overrides
from anymetal.cli.app import app
from anymetal.ops.declare import OPERATORS
from anymetal.overrides import switch, verdicts
from anymetal.overrides.table import TABLE


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    yield
    overrides.disable()


def written(path: Path, ratios: dict[str, list[float]], kind: str = "cpu") -> dict[str, Any]:
    named = {f"torch.nn.functional.{name}": values for name, values in ratios.items()}
    wrong = ["torch.nn.functional.gelu"]
    verdicts.write(path, kind, {"device": "a machine"}, "2026-01-02", named, wrong)
    content: dict[str, Any] = json.loads(path.read_text())["kinds"]
    return content


def test_verdict_asks_for_the_whole_and_for_the_worst(tmp_path: Path) -> None:
    ratios = {
        "silu": [0.8, 1.05],
        "gelu": [0.5],  # whose result is wrong
        "softmax": [0.99, 0.98],
        "rms_norm": [0.2, 1.2],
    }
    functions = written(tmp_path / "v.json", ratios)["cpu"]["functions"]
    found = {name: functions[f"torch.nn.functional.{name}"]["verdict"] for name in ratios}
    assert found == {"silu": "ours", "gelu": "torch", "softmax": "torch", "rms_norm": "torch"}
    assert functions["torch.nn.functional.layer_norm"]["verdict"] == "not measured"


def test_verdict_has_a_least_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small calls that ours slows down are left to torch, by default and not by name."""
    name, path = "torch.nn.functional.silu", tmp_path / "v.json"
    ratios, sizes = [3.0, 0.8, 1.05, 0.5, 0.6], [10, 100, 100, 1000, 1000]
    found = verdicts.write(path, "cpu", {}, "2026-01-02", {name: ratios}, [], {name: sizes})
    assert (found[name].verdict, found[name].least, found[name].worst) == ("ours", 100, 1.05)
    larger = verdicts.judged([0.5, 2.0], True, sizes=[10, 1000])
    assert (larger.verdict, larger.least, larger.measured) == ("torch", 0, 2)
    assert verdicts.judged([0.5], False, sizes=[10]).verdict == "torch"
    monkeypatch.setenv("ANYMETAL_VERDICTS", str(path))
    overrides.reset()
    with overrides.enabled():
        F.silu(torch.ones(99))
        F.silu(torch.ones(100))
        calls = overrides.report().functions[name]
        assert (calls.taken, calls.passed) == (1, {"too few elements to gain": 1})
        with overrides.enabled("activations"):
            F.silu(torch.ones(3))
        F.silu(torch.ones(3))
        assert overrides.report().functions[name].taken == 2


def test_a_part_that_is_measured_again_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    written(path, {"silu": [0.5], "softmax": [0.5]})
    name = "torch.nn.functional.silu"
    found = verdicts.write(path, "cpu", {}, "2026-02-03", {name: [2.0]}, [])
    assert (found[name].verdict, found[name].date) == ("torch", "2026-02-03")
    other = found["torch.nn.functional.softmax"]
    assert (other.verdict, other.date) == ("ours", "2026-01-02")


def test_default_is_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.json"
    written(path, {"softmax": [0.5]}, "mps")
    both = written(path, {"silu": [0.5]})
    assert both.keys() == {"cpu", "mps"}
    assert (both["cpu"]["date"], both["cpu"]["machine"]) == ("2026-01-02", {"device": "a machine"})
    monkeypatch.setenv("ANYMETAL_VERDICTS", str(path))
    with overrides.enabled():
        active = overrides.active()
        assert active["torch.nn.functional.silu"] == ("cpu",)
        assert active["torch.nn.functional.softmax"] == ("mps",)
        assert "torch.nn.functional.rms_norm" not in active


def test_a_mac_that_was_not_measured_is_told_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert "mps" not in verdicts.measured_kinds(), "docs/overrides.md says that none was measured"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(switch, "kind_of", lambda device: "mps")
    with caplog.at_level(logging.WARNING), overrides.enabled():
        assert all("mps" not in kinds for kinds in overrides.active().values())
    assert "nothing was measured on a Mac's GPU" in caplog.text


def test_files_that_are_none_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.json"
    monkeypatch.setenv("ANYMETAL_VERDICTS", str(path))
    for text in (None, "{", "[]", '{"kinds": {"cpu": {}}}', '{"kinds": {"cpu": 3}}'):
        if text is not None:
            path.write_text(text)
        with pytest.raises(ValueError, match=r"v\.json: no file of verdicts"):
            overrides.enable()
        assert overrides.active() == {}
    overrides.enable("norm")  # which asks no file


def test_packaged_file_is_of_this_table() -> None:
    for kind in verdicts.read(verdicts.PACKAGED).values():
        assert set(kind["functions"]) == {row.name for row in TABLE.rows}
        assert kind["date"] and kind["machine"]["device"]
    for row in TABLE.rows:
        assert set(row.operators) <= OPERATORS.keys(), row.name


def bench(path: Path, *names: str) -> Any:
    options = ["--device", "cpu", "--dtype", "fp32", "--seconds", "0.01", "--sizes", "1"]
    arguments = ["bench", *names, *options, "--verdict", str(path)]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_bench_writes_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.json"
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    result = bench(path, "silu", "sgd_step_", "clip_gradients_")
    assert result.exit_code == 0, result.stdout
    kind = json.loads(path.read_text())["kinds"]["cpu"]
    measured = {name: one["measured"] for name, one in kind["functions"].items() if one["measured"]}
    assert measured == {  # forward and backward where there is one
        "torch.nn.functional.silu": 2,
        "torch.optim.SGD": 1,
        "torch.nn.utils.clip_grad_norm_": 1,
    }
    assert kind["machine"]["load"] == 0.1
    assert kind["functions"]["torch.nn.functional.gelu"]["verdict"] == "not measured"


def test_busy_machine_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    result = bench(tmp_path / "v.json", "silu")
    assert result.exit_code == 1
    assert "verdicts need a quiet machine" in result.stdout
    assert not (tmp_path / "v.json").exists()


def test_default_set_gives_right_results() -> None:
    x = torch.randn(7, 33)
    expected = (F.silu(x), F.rms_norm(x, (33,)), F.softmax(x, 0))
    with overrides.enabled():
        torch.testing.assert_close((F.silu(x), F.rms_norm(x, (33,)), F.softmax(x, 0)), expected)
