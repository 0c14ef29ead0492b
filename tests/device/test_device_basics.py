"""The device is there, tensors are made on it, moved to it and back, and shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


def test_torch_says_that_there_is_mps() -> None:
    assert torch.backends.mps.is_built()
    assert torch.backends.mps.is_available()
    assert torch.mps.is_available()
    assert torch.mps.device_count() == 1
    assert torch.backends.mps.is_macos13_or_newer()
    assert torch.backends.mps.is_macos_or_newer(15, 0)
    assert not torch.backends.mps.is_macos_or_newer(26, 0)
    assert isinstance(torch.backends.mps.get_name(), str)
    assert torch.backends.mps.get_core_count() >= 1


@pytest.mark.parametrize("make", [torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn])
def test_factories_make_tensors_of_the_device(make: Callable[..., torch.Tensor]) -> None:
    x = make(3, 2, device="mps")
    assert type(x) is torch.Tensor
    assert x.is_mps
    assert str(x.device) == "mps:0"
    assert x.layout is torch.strided
    assert x.data_ptr() != 0


def test_values_of_factories() -> None:
    assert torch.full((2,), 3, device="mps").tolist() == [3, 3]
    assert torch.arange(5, device="mps").tolist() == [0, 1, 2, 3, 4]
    assert torch.linspace(0, 1, 3, device="mps").tolist() == [0, 0.5, 1]
    assert torch.eye(2, device="mps").tolist() == [[1, 0], [0, 1]]
    assert torch.tensor([1.0, 2.0], device="mps").tolist() == [1, 2]
    assert torch.zeros_like(torch.ones(2, device="mps")).is_mps
    assert torch.ones(2, device="mps").new_full((3,), 7).tolist() == [7, 7, 7]
    assert torch.randint(0, 10, (5,), device="mps").dtype == torch.int64
    assert sorted(torch.randperm(5, device="mps").tolist()) == [0, 1, 2, 3, 4]
    assert torch.zeros(2).new_ones(3, device="mps").is_mps
    assert torch.empty_like(torch.ones(2, device="mps"), device="cpu").device.type == "cpu"


def test_moving_there_and_back() -> None:
    host = torch.arange(6.0).reshape(2, 3)
    there = host.to("mps")
    assert there.is_mps
    assert there.data_ptr() != host.data_ptr()
    assert torch.equal(there.cpu(), host)
    assert torch.equal(there.to("cpu"), host)
    assert torch.equal(there.to(torch.device("mps:0")), there)
    assert there.to("mps") is there
    assert there.half().dtype == torch.float16
    assert there.to(torch.bfloat16).is_mps
    assert host.mT.to("mps").stride() == (1, 3)


def test_values_reach_python() -> None:
    x = torch.arange(6.0, device="mps").reshape(2, 3)
    assert x.sum().item() == 15
    assert float(x[0, 1]) == 1
    assert int(x[1, 2]) == 5
    assert bool((x >= 0).all())
    assert [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
    assert "device='mps:0'" in repr(x)
    assert f"{x.sum():.1f}" == "15.0"
    assert len(x) == 2


def test_default_device() -> None:
    with torch.device("mps"):
        assert torch.ones(2).is_mps
    torch.set_default_device("mps")
    try:
        assert torch.ones(2).is_mps
        assert torch.get_default_device().type == "mps"
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).is_cpu


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int64, torch.bool, torch.cfloat],
)
def test_dtypes(dtype: torch.dtype) -> None:
    host = torch.tensor([0, 1, 1, 0]).to(dtype)
    assert torch.equal(host.to("mps").cpu(), host)
    assert (host.to("mps") == host.to("mps")).all().item()


def test_empty_tensors() -> None:
    x = torch.empty(0, 3, device="mps")
    assert x.sum().item() == 0
    assert torch.cat([x, torch.ones(1, 3, device="mps")]).shape == (1, 3)
    assert x.cpu().shape == (0, 3)


def test_complex_and_conjugate_views() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j], device="mps")
    assert z.conj().is_conj()
    assert z.conj().imag.tolist() == [-2, 1]
    assert torch.equal((z * z.conj()).real.cpu(), torch.tensor([5.0, 10.0]))
    assert torch.allclose(torch.fft.ifft(torch.fft.fft(z)), z)
    assert torch.vdot(z, z).item() == 15


def test_dlpack_round_trip() -> None:
    x = torch.arange(4.0, device="mps")
    y = torch.from_dlpack(x)
    assert y.is_mps
    y[0] = 9
    assert x[0].item() == 9
