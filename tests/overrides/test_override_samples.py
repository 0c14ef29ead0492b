"""torch's own samples of calls, with overrides and without: the same shapes, dtypes, devices,
strides, values, gradients and errors."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from anymetal import overrides
from anymetal.overrides.table import TABLE

LARGEST = 2000  # elements of a sample's tensor
# Samples of a function, spread over all of them; those of attention need a kernel each.
MOST = 1000 if os.environ.get("ANYMETAL_TEST_ALL") else 2
FEW = {"nn.functional.scaled_dot_product_attention": 2}
PLACES = {path: row for row in TABLE.rows for path in row.places}
INFOS = [
    info
    for info in op_db
    if info.name in PLACES
    and info.variant_test_name not in ("singular", "with_train")
    and PLACES[info.name].group != "optim"
]


def found(path: str) -> Any:
    """What stands at a name under torch now."""
    return functools.reduce(getattr, path.split("."), torch)


def small(sample: Any) -> bool:
    given = (sample.input, *sample.args, *sample.kwargs.values())
    return not any(isinstance(value, Tensor) and value.numel() > LARGEST for value in given)


def samples(info: Any, *, requires_grad: bool) -> list[Any]:
    every = [s for s in info.sample_inputs("cpu", torch.float32, requires_grad) if small(s)]
    most = MOST if MOST > 6 else FEW.get(info.name, MOST)
    return every[:: -(-len(every) // most)] if every else []


def tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [r for r in result if isinstance(r, Tensor)]


def called(path: str, sample: Any) -> Any:
    torch.manual_seed(0)  # dropout stays with torch
    args = [sample.input, *sample.args]
    if path == "nn.functional.embedding":  # whose samples name the table first
        args[:2] = args[1::-1]
    return found(path)(*args, **sample.kwargs)


def made(path: str, result: Any) -> list[Tensor]:
    """What two right answers have in common."""
    if path == "linalg.eigh":
        values, vectors = result
        return [values, (vectors * values[..., None, :]) @ vectors.mT]
    if path == "linalg.svd":
        u, s, vh = result
        k = s.shape[-1]
        return [s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]]
    if path == "linalg.qr":
        return [result[0] @ result[1]] if result[0].numel() else [result[1].abs()]
    return tensors(result)


def gradients(path: str, sample: Any) -> list[Tensor | None]:
    """Of a sum of the results with random weights, to every tensor that wants one."""
    leaves = [
        value
        for value in (sample.input, *sample.args, *sample.kwargs.values())
        if isinstance(value, Tensor) and value.requires_grad
    ]
    outputs = [out for out in made(path, called(path, sample)) if out.requires_grad]
    if not outputs or not leaves:
        return []
    weights = [torch.rand(out.shape) for out in outputs]
    return list(torch.autograd.grad(outputs, leaves, weights, allow_unused=True))


def alike(mine: Tensor, other: Tensor, *, strides: bool) -> None:
    assert (mine.shape, mine.dtype, mine.device) == (other.shape, other.dtype, other.device)
    assert mine.requires_grad == other.requires_grad
    if strides and mine.numel() > 1:
        assert mine.stride() == other.stride()
    torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    overrides.reset()
    yield
    assert not [name for name, calls in overrides.report().functions.items() if calls.switched_off]
    overrides.disable()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.formatted_name)
def test_samples_are_as_torchs(info: Any) -> None:
    path = info.name
    for sample in samples(info, requires_grad=info.supports_autograd):
        theirs = called(path, sample)
        expected = gradients(path, sample)
        with overrides.enabled("all", devices=("cpu",)):
            ours = called(path, sample)
            found_gradients = gradients(path, sample)
        assert type(ours) is type(theirs)
        pairs = zip(tensors(ours), tensors(theirs), strict=True)
        for mine, other in pairs:
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        for mine, other in zip(made(path, ours), made(path, theirs), strict=True):
            alike(mine, other, strides=PLACES[path].group != "linalg")
        for mine, other in zip(found_gradients, expected, strict=True):
            assert (mine is None) == (other is None)
            if mine is not None and other is not None:
                alike(mine, other, strides=False)
    assert overrides.report().functions


def error_of(path: str, sample: Any) -> tuple[type[Exception], str] | None:
    try:
        called(path, sample)
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "info", [i for i in INFOS if i.error_inputs_func], ids=lambda info: info.formatted_name
)
def test_errors_are_torchs(info: Any) -> None:
    for wrong in info.error_inputs("cpu"):
        expected = error_of(info.name, wrong.sample_input)
        with overrides.enabled("all"):
            assert error_of(info.name, wrong.sample_input) == expected


# --- all places of the linear algebra, with what torch returns there -----------------------------


def arguments(path: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    a = torch.randn(4, 4, generator=torch.Generator().manual_seed(4))
    a = a @ a.mT + 4 * torch.eye(4)
    name = path.rpartition(".")[2]
    more: dict[str, tuple[Any, ...]] = {
        "cholesky_solve": (a,),
        "solve": (a,),
        "solve_ex": (a,),
        "lstsq": (a,),
        "solve_triangular": (a,),
        "orgqr": (a[0] / 9,),
        "householder_product": (a[0] / 9,),
        "ormqr": (a[0] / 9, a),
        "lu_solve": (torch.arange(1, 5, dtype=torch.int32), a),
    }
    return (a, *more.get(name, ())), {"upper": True} if name == "solve_triangular" else {}


@pytest.mark.parametrize("path", [path for path in PLACES if PLACES[path].group == "linalg"])
def test_every_place_of_linalg_gives_torchs_types(path: str) -> None:
    args, named = arguments(path)
    theirs = found(path)(*args, **named)
    with overrides.enabled("linalg"):
        ours = found(path)(*args, **named)
    assert overrides.report().functions[f"torch.{path}"].taken == 1
    assert type(ours) is type(theirs)
    for mine, other in zip(made(path, ours), made(path, theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3)
