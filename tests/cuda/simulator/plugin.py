"""Tests of operators with every kernel on the simulator, launched as is chosen for `cuda`.

`pytest -p tests.cuda.simulator.plugin tests/ops tests/linalg`, with `--capability 80` as older GPUs
have them. The checker watches nothing there: what it would say is what the plain run of a test is
for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from tests.cuda.simulator.device import simulated_gpu

from anymetal.launch.cuda import CudaKernels
from anymetal.policy.policy import as_if_on

_call = CudaKernels.call

# Tests of which way a CPU goes, and at what cost; and of sums by atomics, whose order is nobody's.
_OF_CPUS = re.compile(
    r"test_(variant_follows|kernel_for_the_shape_is|every_strategy_is_right_and_says|two_phase_is"
    r"|each_strategy_is_chosen|launch_follows|single_pass_kernels_move|frozen_parameters_cost"
    r"|engines_agree\[scatter_add)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--capability", type=int, default=90, help="80, 90")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _OF_CPUS.match(item.name)]


@pytest.fixture(autouse=True)
def _simulated(request: pytest.FixtureRequest) -> Iterator[None]:
    with (
        simulated_gpu(divmod(request.config.getoption("--capability"), 10)),
        as_if_on("cuda"),
        mock.patch.object(CudaKernels, "call", _unchecked),
    ):
        yield


def _unchecked(kernels: CudaKernels, device: int, check: object, *more: Any) -> None:
    _call(kernels, device, None, *more)
