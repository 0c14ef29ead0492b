"""torch's own samples for its linalg functions, in float32, through ours."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from anymetal import linalg

WITHOUT_SAMPLES = {"LinAlgError", "matrix_exp"}
NAMES = {
    **{
        f"linalg.{name}": name
        for name in linalg.__all__
        if hasattr(torch.linalg, name) and name not in WITHOUT_SAMPLES
    },
    "cholesky_solve": "cholesky_solve",
    "cholesky_inverse": "cholesky_inverse",
    "geqrf": "geqrf",
    "ormqr": "ormqr",
}
LARGEST = 400  # elements of a sample's matrix; kernels for larger ones have their own tests


def tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def invariant(name: str, result: Any, args: tuple[Any, ...]) -> list[Tensor]:
    """What two right answers have in common: products, where vectors are free."""
    found = tensors(result)
    if name == "eigh":
        values, vectors = found
        return [values, (vectors * values[..., None, :]) @ vectors.mT]
    if name == "svd":
        u, s, vh = found
        k = s.shape[-1]
        return [s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]]
    return found


def opinfos(name: str) -> list[Any]:
    """Of each variant one; "singular" is a function of two matrices."""
    # It takes seconds, and most workers run no test of this file.
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415

    return [i for i in op_db if i.name == name and i.variant_test_name != "singular"]


@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str) -> None:
    found = opinfos(name)
    assert found
    for info in found:
        compare(info)


def compare(info: Any) -> None:
    ours = getattr(linalg, NAMES[info.name])
    ran = 0
    for sample in info.sample_inputs("cpu", torch.float32):
        args = (sample.input, *sample.args)
        if any(isinstance(a, Tensor) and a.numel() > LARGEST for a in args):
            continue
        if sample.kwargs.get("pivot") is False or "out" in sample.kwargs:
            continue
        called = functools.partial(ours, *args, **sample.kwargs)
        theirs = info.op(*args, **sample.kwargs)
        name = NAMES[info.name]
        pairs = zip(invariant(name, called(), args), invariant(name, theirs, args), strict=False)
        for mine, other in pairs:
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3)
        ran += 1
    assert ran
