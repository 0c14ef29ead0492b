"""Every test here has the virtual mps device, with the options it starts with.

Enabling holds for the process, and other tests may share it: they use CPU tensors and do not
notice. What must start from nothing runs in a process of its own, see `programs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import anymetal.device


@pytest.fixture(autouse=True)
def device(mps: torch.device) -> Iterator[torch.device]:
    torch.manual_seed(0)
    anymetal.device.enable(missing="run", asynchronous=False)
    yield mps
    torch.mps.synchronize()
    anymetal.device.enable(missing="run", asynchronous=False)
