"""The examples in the README run as they stand there, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

README = Path(__file__).parent.parent / "README.md"


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


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
