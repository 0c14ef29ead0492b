"""Extensions are built and loaded once a process; what they need must be there.

Without clang and libobjc these tests fail, and say what to install: a skip would hide that nothing
of it was tried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import anymetal.device

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"


@pytest.fixture(autouse=True)
def device(mps: torch.device) -> Iterator[torch.device]:
    torch.manual_seed(0)
    anymetal.device.enable(missing="run", asynchronous=False)
    yield mps
    torch.mps.synchronize()
    anymetal.device.enable(missing="run", asynchronous=False)


@pytest.fixture(scope="session")
def patterns() -> Any:
    """The example's package."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        import patterns  # noqa: PLC0415
    finally:
        sys.path.remove(str(EXAMPLE))
    return patterns
