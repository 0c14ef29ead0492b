"""The example in the README runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

README = Path(__file__).parent.parent / "README.md"


def test_example_runs() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(example, names)
    assert torch.equal(names["out"], 3 * names["x"])


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
