"""The kernels of the benchmarks run checked, over all their data, and nothing is found."""

import pytest
import torch

import anymetal
import contenders
import startup
import workloads


@pytest.mark.parametrize("name", workloads.MAKERS)
def test_workload_is_silent_under_the_checker(name: str) -> None:
    torch.manual_seed(0)
    workload = workloads.MAKERS[name]()
    contender = contenders.coroutine(workload)
    with anymetal.check() as report:
        contender.call()
    assert not report.findings, report
    assert report.kernels == (name,)


def test_smallest_kernel_is_silent_under_the_checker() -> None:
    with anymetal.check() as report:
        startup.compile_and_launch(startup.SMALL.read_text())
    assert not report.findings, report


def test_every_kernel_has_its_test() -> None:
    tested = {startup.SMALL.stem, *workloads.MAKERS}
    assert {path.stem for path in workloads.KERNELS.glob("*.metal")} == tested
