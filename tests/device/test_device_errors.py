"""As picky as a Mac: mixed devices, float64, numpy, sparse tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

NO_FLOAT64 = "Cannot convert a MPS Tensor to float64 dtype"


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(3) + x,
        lambda x: torch.mm(torch.ones(2, 3), torch.ones(3, 2, device="mps")),
        lambda x: torch.cat([x, torch.ones(3)]),
        lambda x: torch.nn.Linear(3, 3)(x),
        lambda x: torch.where(x > 0, x, torch.zeros(3)),
        lambda x: x.add_(torch.ones(3)),
    ],
)
def test_mixing_devices_raises(mix: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        mix(torch.ones(3, device="mps"))


def test_message_names_the_devices_in_order() -> None:
    with pytest.raises(RuntimeError, match="at least two devices, mps:0 and cpu!"):
        torch.ones(3, device="mps") + torch.ones(3)
    with pytest.raises(RuntimeError, match="at least two devices, cpu and mps:0!"):
        torch.ones(3) + torch.ones(3, device="mps")


def test_numbers_in_cpu_tensors_mix() -> None:
    x = torch.ones(3, device="mps")
    assert (x + torch.tensor(1.0)).is_mps
    assert (x * torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
    assert (torch.tensor(1.0) + x).is_mps


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.ones(3, dtype=torch.float64, device="mps"),
        lambda x: x.double(),
        lambda x: x.to(torch.float64),
        lambda x: torch.ones(3, dtype=torch.float64).to("mps"),
        lambda x: torch.tensor(np.ones(3)).to("mps"),
        lambda x: x.sum(dtype=torch.float64),
        lambda x: torch.arange(3, dtype=torch.float64, device="mps"),
        lambda x: torch.zeros(3, dtype=torch.complex128, device="mps"),
        lambda x: torch.nn.Linear(3, 3).double().to("mps"),
        lambda x: torch.bincount(x.long(), weights=x.int()),
    ],
)
def test_float64_is_refused(make: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(TypeError, match=NO_FLOAT64):
        make(torch.ones(3, device="mps"))


def test_numpy_needs_the_cpu() -> None:
    x = torch.ones(3, device="mps")
    with pytest.raises(TypeError, match="can't convert mps:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert mps:0 device type tensor to numpy"):
        np.asarray(x)
    assert x.cpu().numpy().tolist() == [1, 1, 1]


def test_sparse_tensors_are_refused_clearly() -> None:
    with pytest.raises(NotImplementedError, match="dense tensors only"):
        torch.ones(3, 3, device="mps").to_sparse()


def test_set_to_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="different device"):
        torch.ones(3, device="mps").set_(torch.ones(3))


def test_damaged_metallib_is_refused_clearly() -> None:
    with pytest.raises(ValueError, match="no usable metallib: it has 4 bytes"):
        torch.mps.load_metallib(b"MTLB")


def test_assert_close_compares_on_the_device() -> None:
    torch.testing.assert_close(torch.ones(3, device="mps"), torch.ones(3, device="mps"))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(torch.ones(3, device="mps"), torch.zeros(3, device="mps"))
