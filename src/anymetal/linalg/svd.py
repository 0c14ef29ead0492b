"""Singular values and vectors: svd, svdvals and svd_lowrank."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.algorithms import svd as algorithm
from anymetal.linalg.algorithms.matrices import flat, positive_signs
from anymetal.linalg.examples import case, conditioned, cost, decaying, halving, random, spread
from anymetal.linalg.outputs import with_out
from anymetal.linalg.qr import qr
from anymetal.linalg.ratios import GRADIENT_ERRORS, by, of_svd, of_svd_lowrank
from anymetal.linalg.requirements import (
    Named,
    check_matrix,
    in_float,
    named,
    raise_failed,
    wide,
)
from anymetal.ops.declare import Call, Cost, Gradients, operator

Triple = tuple[Tensor, Tensor, Tensor]


def _reference(A: Tensor, full_matrices: bool = True) -> Triple:
    u, s, vh = torch.linalg.svd(A, full_matrices=full_matrices)
    signs = _signs(u.detach(), s)
    return (
        u * _padded(signs, u.shape[-1])[..., None, :],
        s,
        (vh * _padded(signs, vh.shape[-2])[..., :, None]),
    )


def _signs(u: Tensor, s: Tensor) -> Tensor:
    """The signs that make the largest component of each left singular vector positive."""
    return positive_signs(u[..., : s.shape[-1]])[..., 0, :]


def _padded(signs: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(signs, (0, size - signs.shape[-1]), value=1.0)


@operator(
    source="algorithms/jacobi.metal",
    reference=_reference,
    baseline=in_float(_reference),
    cases=(
        case("empty", (spread, (0, 3)), full_matrices=False),
        case("", (spread, (1, 1))),
        case("", (spread, (2, 9, 4)), full_matrices=False),
        case("", (spread, (5, 31)), full_matrices=False),
        case("", (spread, (3, 6, 6))),
    ),
    bench=tuple(
        case("", (spread, shape), full_matrices=False)
        for shape in ((1000, 8, 8), (1000, 32, 32), (128, 128))
    ),
    cost=cost(lambda m, n: 4 * m * n * min(m, n) + 22 * min(m, n) ** 3),
    results=("U", "S", "Vh"),
    ratios=by(of_svd),
    gradient_errors=GRADIENT_ERRORS,
    name="svd",
)
def _svd(A: Tensor, full_matrices: bool = True) -> Triple:
    check_matrix("svd", "A", A)
    *batch, m, n = A.shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    return (
        A.new_empty(*batch, m, rows),
        A.new_empty(*batch, k),
        A.new_empty(*batch, columns, n),
    )


@_svd.run
def _(output: Triple, A: Tensor, full_matrices: bool = True) -> None:
    u, s, vh, info = algorithm.solve(flat(A), full=full_matrices)
    raise_failed(info.reshape(A.shape[:-2]), "linalg.svd", _words)
    signs = _signs(u, s)
    u = u * _padded(signs, u.shape[-1])[..., None, :]
    vh = vh * _padded(signs, vh.shape[-2])[..., :, None]
    for room, found in zip(output, (u, s, vh), strict=True):
        room.copy_(found.reshape(room.shape))


def _words(info: int) -> str:
    if info < 0:
        return (
            "The algorithm failed to converge because the input matrix contained non-finite values."
        )
    return (
        "The algorithm failed to converge because the input matrix is ill-conditioned or has too"
        f" many repeated singular values (error code: {info})."
    )


@_svd.backward(keep=["A", "U", "S", "Vh"])
def _(
    call: Call, grad_u: Tensor | None, grad_s: Tensor | None, grad_vh: Tensor | None
) -> Gradients:
    u, s, vh = call.U, call.S, call.Vh
    if s.dtype != torch.float32:
        u, s, vh = _svd(wide(call.A), call.full_matrices)
    k = s.shape[-1]
    u, v = u[..., :k], vh[..., :k, :].mT
    inner = torch.diag_embed(torch.zeros_like(s) if grad_s is None else wide(grad_s))
    squares = (s[..., None, :] - s[..., :, None]) * (s[..., None, :] + s[..., :, None])
    squares = squares + torch.diag_embed(torch.full_like(s, torch.inf))
    outside = torch.zeros((), device=s.device)
    if grad_u is not None:
        grad = wide(grad_u)[..., :k]
        projected = u.mT @ grad
        inner = inner + (projected - projected.mT) / squares * s[..., None, :]
        if u.shape[-2] > k:
            outside = outside + (grad - u @ projected) / s[..., None, :] @ v.mT
    if grad_vh is not None:
        grad = wide(grad_vh)[..., :k, :].mT
        projected = v.mT @ grad
        inner = inner + s[..., :, None] * (projected - projected.mT) / squares
        if v.shape[-2] > k:
            outside = outside + u / s[..., None, :] @ (grad - v @ projected).mT
    return {"A": (u @ inner @ v.mT + outside).to(call.A.dtype)}


def _check_driver(driver: str | None) -> None:
    if driver is not None:
        raise RuntimeError(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with"
            " cuSOLVER backend."
        )


@with_out
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Named:
    """U, S in descending order and Vh with A = U diag(S) Vh, as torch.linalg.svd.

    The largest component of a left singular vector is positive. Raises LinAlgError for matrices
    with numbers that are not finite.
    """
    _check_driver(driver)
    return named("linalg_svd", _svd(A, full_matrices))


def _values_reference(A: Tensor) -> Tensor:
    values: Tensor = torch.linalg.svdvals(A)
    return values


@operator(
    source="algorithms/jacobi.metal",
    reference=_values_reference,
    baseline=in_float(_values_reference),
    cases=(
        case("empty", (spread, (0, 3))),
        case("", (spread, (2, 9, 4))),
        case("", (spread, (5, 31))),
    ),
    bench=[case("", (spread, (1000, 8, 8)))],
    cost=cost(lambda m, n: 4 * m * n * min(m, n) + 22 * min(m, n) ** 3),
    made_of_others=True,
    name="svdvals",
)
def _svdvals(A: Tensor) -> Tensor:
    return _svd(A, full_matrices=False)[1]


@with_out
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values in descending order, as torch.linalg.svdvals."""
    _check_driver(driver)
    return _svdvals(A)


def _lowrank_reference(A: Tensor, directions: Tensor, niter: int = 2) -> Triple:
    tall = A.mT if A.shape[-2] < A.shape[-1] else A
    basis = torch.linalg.qr(tall @ directions).Q
    for _ in range(niter):
        other = torch.linalg.qr(tall.mT @ basis).Q
        basis = torch.linalg.qr(tall @ other).Q
    u, s, vh = _reference(basis.mT @ tall, full_matrices=False)
    left, right = basis @ u, vh.mT
    return (left, s, right) if tall is A else (right, s, left)


def _lowrank_cost(A: Tensor, directions: Tensor, niter: int = 2) -> Cost:
    q = directions.shape[-1]
    return Cost(
        read=A.nbytes + directions.nbytes,
        write=A.itemsize * A.shape[:-2].numel() * q * (A.shape[-2] + A.shape[-1] + 1),
        flops=4 * (niter + 1) * A.numel() * q,
    )


@operator(
    source="algorithms/jacobi.metal",
    reference=_lowrank_reference,
    baseline=in_float(_lowrank_reference),
    cases=(
        case("empty", (spread, (0, 3)), (random, (0, 0))),
        case("", (halving, (2, 9, 4)), (conditioned, (4, 2)), niter=1),
        case("", (halving, (5, 31)), (conditioned, (5, 2)), niter=1),
    ),
    bench=[case("", (decaying, (128, 64)), (random, (64, 6)))],
    cost=_lowrank_cost,
    results=("U", "S", "V"),
    ratios=by(of_svd_lowrank),
    gradient_errors=GRADIENT_ERRORS,
    made_of_others=True,
    name="svd_lowrank",
)
def _svd_lowrank(A: Tensor, directions: Tensor, niter: int = 2) -> Triple:
    """`directions`: random columns, as many as the rank, for the shorter side of A."""
    check_matrix("svd_lowrank", "A", A)
    matrix, chosen = wide(A, directions)
    if matrix.shape[-2] < matrix.shape[-1]:
        v, s, u = _lowrank(matrix.mT, chosen, niter)
    else:
        u, s, v = _lowrank(matrix, chosen, niter)
    return u.to(A.dtype), s.to(A.dtype), v.to(A.dtype)


def _lowrank(matrix: Tensor, directions: Tensor, niter: int) -> Triple:
    basis = qr(matrix @ directions).Q
    for _ in range(niter):
        other = qr(matrix.mT @ basis).Q
        basis = qr(matrix @ other).Q
    u, s, vh = _svd(basis.mT @ matrix, full_matrices=False)
    return basis @ u, s, vh.mT


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of an approximation of rank q to A - M, as torch.svd_lowrank.

    Random directions come from torch's generator: the same seed gives the same result.
    """
    check_matrix("svd_lowrank", "A", A)
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    if not 0 <= q <= min(A.shape[-2:]):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    matrix = A if M is None else (A - M).float()
    directions = torch.randn(min(matrix.shape[-2:]), q, device=matrix.device)
    u, s, v = _svd_lowrank(matrix, directions, niter)
    return u.to(A.dtype), s.to(A.dtype), v.to(A.dtype)
