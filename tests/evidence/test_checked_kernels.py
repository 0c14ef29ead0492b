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


def _own_kernel(name: str) -> anymetal.ShaderLibrary:
    return anymetal.compile_shader((workloads.KERNELS / f"{name}.metal").read_text())


def test_scan_of_the_gpu_table_is_right_and_silent() -> None:
    x = torch.randn(3, 8192 + 4 * 33)
    y = torch.full_like(x, torch.nan)
    with anymetal.check() as report:
        _own_kernel("scan_held").scan(x, y, x.shape[1], threads=3 * 256, group_size=256)
    assert not report.findings, report
    torch.testing.assert_close(y, x.double().cumsum(1).float(), rtol=0, atol=2e-4)


def test_histogram_of_the_gpu_table_is_right_and_silent() -> None:
    data = torch.randint(0, 256, (16 * 1500,), dtype=torch.uint8)
    counts = torch.zeros(256, dtype=torch.int32)
    with anymetal.check() as report:
        _own_kernel("histogram_of_lanes").histogram(
            data, counts, data.numel(), threads=2 * 256, group_size=256
        )
    assert not report.findings, report
    assert torch.equal(counts.long(), torch.bincount(data.long(), minlength=256))


@pytest.mark.parametrize("place", [0, 2049, 4 * 1500 - 1])
def test_read_of_the_gpu_table_is_right_and_silent(place: int) -> None:
    """It writes what it looks for, and nothing else: so every word is read."""
    looked_for = 0x9E3779B9 - 2**32
    data, found = torch.zeros(4 * 1500, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with anymetal.check(outputs=()) as report:
        for number in (1, looked_for):
            data[place] = number
            assert found.item() == 0
            _own_kernel("read_all").read_all(
                data, found, data.numel() // 4, threads=2 * 256, group_size=256
            )
    assert not report.findings, report
    assert found.item() == looked_for


def test_every_kernel_has_its_test() -> None:
    own = {"scan_held", "histogram_of_lanes", "read_all"}
    tested = {startup.SMALL.stem, *workloads.MAKERS, *own}
    assert {path.stem for path in workloads.KERNELS.glob("*.metal")} == tested
