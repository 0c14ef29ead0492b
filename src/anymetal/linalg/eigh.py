"""Eigenvalues and eigenvectors of symmetric matrices: eigh and eigvalsh."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.algorithms import eigh as algorithm
from anymetal.linalg.algorithms.matrices import flat, positive_signs
from anymetal.linalg.examples import case, cost, symmetric
from anymetal.linalg.outputs import with_out
from anymetal.linalg.ratios import GRADIENT_ERRORS, by, of_eigh
from anymetal.linalg.requirements import (
    Named,
    check_matrix,
    in_float,
    named,
    raise_failed,
    wide,
)
from anymetal.ops.declare import Call, Gradients, operator

Pair = tuple[Tensor, Tensor]


def _reference(A: Tensor, UPLO: str = "L") -> Pair:
    values, vectors = torch.linalg.eigh(A, UPLO=UPLO)
    return values, vectors * positive_signs(vectors.detach())


@operator(
    source="algorithms/jacobi.metal",
    reference=_reference,
    baseline=in_float(_reference),
    cases=(
        case("empty", (symmetric, (2, 0, 0))),
        case("", (symmetric, (1, 1))),
        case("", (symmetric, (5, 7, 7)), UPLO="U"),
        case("", (symmetric, (31, 31))),
    ),
    bench=tuple(
        case("", (symmetric, shape)) for shape in ((1000, 8, 8), (1000, 32, 32), (128, 128))
    ),
    cost=cost(lambda n, _: 9 * n**3),
    results=("eigenvalues", "eigenvectors"),
    ratios=by(of_eigh),
    gradient_errors=GRADIENT_ERRORS,
    name="eigh",
)
def _eigh(A: Tensor, UPLO: str = "L") -> Pair:
    check_matrix("eigh", "A", A, square=True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return A.new_empty(A.shape[:-1]), A.new_empty(A.shape)


@_eigh.run
def _(output: Pair, A: Tensor, UPLO: str = "L") -> None:
    values, vectors, info = algorithm.solve(flat(A), lower=UPLO.upper() == "L")
    raise_failed(info.reshape(A.shape[:-2]), "linalg.eigh", _words)
    output[0].copy_(values.reshape(output[0].shape))
    output[1].copy_((vectors * positive_signs(vectors)).reshape(output[1].shape))


def _words(info: int) -> str:
    if info < 0:
        return (
            "The algorithm failed to converge because the input matrix contained non-finite values."
        )
    return (
        "The algorithm failed to converge because the input matrix is ill-conditioned or has too"
        f" many repeated eigenvalues (error code: {info})."
    )


@_eigh.backward(keep=["A", "eigenvalues", "eigenvectors"])
def _(call: Call, grad_values: Tensor | None, grad_vectors: Tensor | None) -> Gradients:
    values, vectors = call.eigenvalues, call.eigenvectors
    if values.dtype != torch.float32:
        values, vectors = _eigh(wide(call.A), call.UPLO)
    inner = torch.zeros_like(vectors)
    if grad_vectors is not None:
        distances = values[..., None, :] - values[..., :, None]
        distances = distances + torch.diag_embed(torch.full_like(values, torch.inf))
        projected = vectors.mT @ wide(grad_vectors)
        inner = (projected - projected.mT) / 2 / distances
    if grad_values is not None:
        inner = inner + torch.diag_embed(wide(grad_values))
    return {"A": (vectors @ inner @ vectors.mT).to(call.A.dtype)}


@with_out
def eigh(A: Tensor, UPLO: str = "L") -> Named:
    """Ascending eigenvalues and eigenvectors, as torch.linalg.eigh; one triangle is read.

    The largest component of an eigenvector is positive. Raises LinAlgError for matrices with
    numbers that are not finite.
    """
    return named("linalg_eigh", _eigh(A, UPLO))


def _values_reference(A: Tensor, UPLO: str = "L") -> Tensor:
    values: Tensor = torch.linalg.eigvalsh(A, UPLO=UPLO)
    return values


@operator(
    source="algorithms/jacobi.metal",
    reference=_values_reference,
    baseline=in_float(_values_reference),
    cases=(
        case("empty", (symmetric, (2, 0, 0))),
        case("", (symmetric, (5, 7, 7)), UPLO="U"),
        case("", (symmetric, (7, 7))),
    ),
    bench=[case("", (symmetric, (1000, 8, 8)))],
    cost=cost(lambda n, _: 9 * n**3),
    made_of_others=True,
    name="eigvalsh",
)
def _eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    return _eigh(A, UPLO)[0]


@with_out
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Ascending eigenvalues, as torch.linalg.eigvalsh."""
    return _eigvalsh(A, UPLO)
