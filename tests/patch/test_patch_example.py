"""The example trains and writes the same with and without its one line, on the virtual device."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.modeling_utils import AttentionInterface

from anymetal.patch import attention

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "language_model.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("language_model", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example_does_the_same_with_its_line(
    mps: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load()
    options = ["--steps", "4", "--length", "9", "--tokens", "8"]
    losses, text = example.main(options)
    assert "replaced" not in capsys.readouterr().out
    found, same = example.main([*options, "--patch"])
    assert "replaced: 12" in capsys.readouterr().out
    assert same == text and losses[-1] < losses[0]
    assert found == pytest.approx(losses, rel=1e-3)
    # The model is gone, and nobody undid its patch.
    attention._registration.release()
    assert attention.NAME not in AttentionInterface._global_mapping
