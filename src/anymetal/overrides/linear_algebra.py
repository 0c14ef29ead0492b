"""torch.linalg and its relatives under `torch`, by anymetal.linalg, which has torch's arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from anymetal import linalg
from anymetal.overrides.table import TABLE, Row

# torch's names, ours, and the operator whose times decide.
_FUNCTIONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("linalg.cholesky",), "cholesky", "cholesky_ex"),
    (("linalg.cholesky_ex",), "cholesky_ex", "cholesky_ex"),
    (("cholesky_inverse", "Tensor.cholesky_inverse"), "cholesky_inverse", "solve_triangular"),
    (("cholesky_solve", "Tensor.cholesky_solve"), "cholesky_solve", "solve_triangular"),
    (("linalg.cond",), "cond", "svd"),
    (("linalg.det", "det", "Tensor.det"), "det", "det"),
    (("linalg.eigh",), "eigh", "eigh"),
    (("linalg.eigvalsh",), "eigvalsh", "eigh"),
    (("geqrf", "Tensor.geqrf"), "geqrf", "geqrf"),
    (("linalg.householder_product", "orgqr"), "householder_product", "householder_product"),
    (("linalg.inv", "inverse", "Tensor.inverse"), "inv", "inv_ex"),
    (("linalg.inv_ex",), "inv_ex", "inv_ex"),
    (("linalg.lstsq",), "lstsq", "lstsq"),
    (("linalg.lu",), "lu", "lu_factor_ex"),
    (("linalg.lu_factor",), "lu_factor", "lu_factor_ex"),
    (("linalg.lu_factor_ex",), "lu_factor_ex", "lu_factor_ex"),
    (("linalg.lu_solve",), "lu_solve", "lu_solve"),
    (("linalg.matrix_exp", "matrix_exp", "Tensor.matrix_exp"), "matrix_exp", "matrix_exp"),
    (("linalg.matrix_norm",), "matrix_norm", "svd"),
    (("linalg.matrix_rank",), "matrix_rank", "svd"),
    (("ormqr", "Tensor.ormqr"), "ormqr", "ormqr"),
    (("linalg.pinv",), "pinv", "pinv"),
    (("linalg.qr",), "qr", "qr"),
    (("linalg.slogdet",), "slogdet", "slogdet"),
    (("slogdet", "Tensor.slogdet"), "slogdet", "slogdet"),
    (("linalg.solve",), "solve", "solve_ex"),
    (("linalg.solve_ex",), "solve_ex", "solve_ex"),
    (("linalg.solve_triangular",), "solve_triangular", "solve_triangular"),
    (("linalg.svd",), "svd", "svd"),
    (("linalg.svdvals",), "svdvals", "svd"),
)


# Those whose gradients torch has with other values outside the triangle, or to other results.
_UNDIFFERENTIATED = ("cholesky_inverse", "cholesky_solve", "lstsq")


def _adapted(place: str, name: str) -> Callable[..., Any]:
    """A function of ours that leaves to torch what the two do not have in common."""
    kind = getattr(torch.return_types, place, None)  # outside torch.linalg a class of its own
    function = getattr(linalg, name)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        tensors = [value for value in (*args, *named.values()) if isinstance(value, torch.Tensor)]
        if named.get("out") is not None:
            return "out="
        if any(tensor.numel() == 0 for tensor in tensors):
            return "an empty tensor"
        recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        if recorded and name in _UNDIFFERENTIATED:
            return "needs a gradient"
        result = function(*args, **named)
        return result if kind is None else kind(tuple(result))

    return called


for _places, _name, _operator in _FUNCTIONS:
    TABLE.rows.append(
        Row(
            "linalg",
            _places,
            _adapted(_places[0], _name),
            (_operator,),
            applies="float32",
            elsewhere="float64 and complex numbers; empty tensors; out=; inside torch.compile,"
            " since errors are decided by values"
            + ("; gradients" if _name in _UNDIFFERENTIATED else ""),
            dtypes=(torch.float32,),
            integers=(torch.int32,),
            autocast=False,
            compiled=False,
        )
    )
