"""Tests of operators and of the language with every kernel on the simulator.

`pytest -p tests.cuda.simulator.plugin --simulated tests/ops`: launches are chosen as for `cuda`.
The checker watches nothing there: what it would say is what the plain run of a test is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from tests.cuda.simulator.device import simulated_gpu

from anymetal.launch.cuda import CudaKernels
from anymetal.policy.policy import as_if_on

_call = CudaKernels.call


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--simulated", action="store_true", help="kernels run as on an NVIDIA GPU")


@pytest.fixture(autouse=True)
def _simulated(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.config.getoption("--simulated"):
        yield
        return
    with (
        simulated_gpu(),
        as_if_on("cuda"),
        mock.patch.object(CudaKernels, "call", _unchecked),
    ):
        yield


def _unchecked(kernels: CudaKernels, device: int, check: object, *more: Any) -> None:
    _call(kernels, device, None, *more)
