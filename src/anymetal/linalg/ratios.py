"""LAPACK's test ratios: how far results are from being those of a matrix close by, in n eps.

A factor's own error depends on how the matrix is conditioned; the product's does not. Everything
is computed in float64; a ratio is one number a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

EPSILON = torch.finfo(torch.float32).eps
# Of torch's own: derivatives of vectors divide by the distances of values.
GRADIENT_ERRORS = 8.0
Ratios = dict[str, Tensor]


def by(ratios: Callable[..., Ratios]) -> Callable[..., Ratios]:
    """As an operator declares them: of the results, and of the arguments that gave them."""

    def called(results: Sequence[Tensor], A: Tensor, *_: Any, **__: Any) -> Ratios:
        return ratios(A, *results)

    return called


def norm(matrix: Tensor) -> Tensor:
    """Frobenius; 1 for zero, so that it can be divided by."""
    value = torch.linalg.matrix_norm(matrix.double())
    return torch.where(value == 0, 1.0, value)


def orthogonality(q: Tensor) -> Tensor:
    n = q.shape[-1]
    gram = q.double().mT @ q.double()
    distance: Tensor = torch.linalg.matrix_norm(gram - torch.eye(n)) / (max(n, 1) * EPSILON)
    return distance


def residual(difference: Tensor, a: Tensor) -> Tensor:
    size = max(a.shape[-2:]) * EPSILON
    part: Tensor = torch.linalg.matrix_norm(difference) / (norm(a) * size)
    return part


def values_error(values: Tensor, exact: Tensor) -> Tensor:
    largest = exact.abs().amax(-1)
    largest = torch.where(largest == 0, 1.0, largest)
    return (values - exact).abs().amax(-1) / (largest * values.shape[-1] * EPSILON)


def of_qr(a: Tensor, q: Tensor, r: Tensor) -> Ratios:
    return {
        "residual": residual(a.double() - q.double() @ r.double(), a),
        "orthogonality": orthogonality(q),
    }


def of_geqrf(a: Tensor, reflections: Tensor, tau: Tensor) -> Ratios:
    count = tau.shape[-1]
    wide = reflections.double()
    q = torch.linalg.householder_product(wide[..., :count].contiguous(), tau.double())
    return of_qr(a, q, wide[..., :count, :].triu())


def of_lu_factors(a: Tensor, factors: Tensor, pivots: Tensor, *_: Tensor) -> Ratios:
    return of_lu(a, *torch.lu_unpack(factors.double(), pivots))


def of_lu(a: Tensor, permutation: Tensor, lower: Tensor, upper: Tensor) -> Ratios:
    product = permutation.double() @ lower.double() @ upper.double()
    return {"residual": residual(a.double() - product, a)}


def of_cholesky(a: Tensor, lower: Tensor) -> Ratios:
    return {"residual": residual(a.double() - lower.double() @ lower.double().mT, a)}


def of_eigh(a: Tensor, values: Tensor, vectors: Tensor) -> Ratios:
    v, w = vectors.double(), values.double()
    return {
        "residual": residual(a.double() @ v - v * w[..., None, :], a),
        "orthogonality": orthogonality(vectors),
        "values": values_error(w, torch.linalg.eigvalsh(a.double())),
    }


def of_svd(a: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Ratios:
    k = s.shape[-1]
    product = (u.double()[..., :k] * s.double()[..., None, :]) @ vh.double()[..., :k, :]
    return {
        "residual": residual(a.double() - product, a),
        "left": orthogonality(u),
        "right": orthogonality(vh.mT),
        "values": values_error(s.double(), torch.linalg.svdvals(a.double())),
    }


def of_svd_lowrank(a: Tensor, u: Tensor, s: Tensor, v: Tensor) -> Ratios:
    """The longer side's vectors times the values are the matrix times the shorter side's."""
    tall, basis, short = (a, u, v) if a.shape[-2] >= a.shape[-1] else (a.mT, v, u)
    projected = tall.double().mT @ basis.double()
    return {
        "residual": residual(projected - short.double() * s.double()[..., None, :], a),
        "left": orthogonality(u),
        "right": orthogonality(v),
    }
