"""The examples in the README run as they stand there; the documents' links and lines are sound."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from anymetal.overrides.table import as_markdown

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COLUMNS = 100

of_each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def test_examples_run() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 3
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    assert torch.equal(names["out"], 3 * names["x"])
    assert "error[out_of_bounds] in scale: read of 4 bytes outside device 'x'" in str(
        names["report"]
    )
    assert names["y"].shape == (4, 64)


def test_examples_of_training_run() -> None:
    text = (ROOT / "docs" / "training.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert examples
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    assert names["table"].grad.isfinite().all()
    assert names["error"] < 0.5 * names["y"].square().mean()


def test_examples_of_weights_run() -> None:
    text = (ROOT / "docs" / "weights.md").read_text()
    names: dict[str, Any] = {}
    for example in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(example, names)
    assert (names["matrix"] == 0.5).all()


def test_examples_of_your_kernels_run() -> None:
    text = (ROOT / "docs" / "your-kernels.md").read_text()
    names: dict[str, Any] = {}
    for example in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(example, names)
    assert names["report"].passed


def test_examples_and_table_of_overrides() -> None:
    text = (ROOT / "docs" / "overrides.md").read_text()
    names: dict[str, Any] = {}
    for example in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(example, names)
    assert names["x"].grad.isfinite().all()
    # Made again: python -c "from anymetal import overrides as o; print(o.table.as_markdown())"
    assert as_markdown() in text


@of_each_document
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@of_each_document
def test_lines_fit(path: Path) -> None:
    """Rows of tables are exempt: Markdown cannot break them."""
    lines = path.read_text().splitlines()
    long = [line for line in lines if len(line) > COLUMNS and not line.startswith("|")]
    assert long == []
