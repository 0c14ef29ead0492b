"""Eigenvalues and eigenvectors of symmetric matrices, by two-sided Jacobi rotations."""

from __future__ import annotations

import torch

from anymetal.linalg.algorithms.jacobi import BLOCK, KERNELS, Rounds, measure
from anymetal.linalg.algorithms.matrices import SIMDGROUP, layout, padded, product, threads_of

_SIZES = (8, 16, 32, 64)


def solve(a: torch.Tensor, *, lower: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ascending eigenvalues, eigenvectors and info of a batch; one triangle is read.

    info is -1 for a matrix with a number that is not finite, n for one without convergence.
    """
    batch, n, _ = a.shape
    if a.numel() == 0:
        info = torch.zeros(batch, dtype=torch.int32, device=a.device)
        return a.new_empty(batch, n), a.new_empty(batch, n, n), info
    if n <= _SIZES[-1]:
        return _tile(a, lower)
    return _blocked(a if lower else a.mT)


def _tile(a: torch.Tensor, lower: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, n, _ = a.shape
    size = next(size for size in _SIZES if size >= n)
    values, vectors = a.new_empty(batch, n), a.new_empty(batch, n, n)
    info = torch.empty(batch, dtype=torch.int32, device=a.device)
    together = max(1, SIMDGROUP // size)
    threads = SIMDGROUP if size <= SIMDGROUP else threads_of("eigh", a.device)
    KERNELS.kernel("eigh_simdgroup" if size <= SIMDGROUP else "eigh_group", a.device)(
        a,
        values,
        vectors,
        info,
        {
            "n": n,
            "size": size,
            "matrices": batch,
            "lower": lower,
            "a": layout(a),
            "v": layout(vectors),
        },
        threads=-(-batch // together) * threads,
        group_size=threads,
    )
    return values, vectors, info


def _blocked(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Blocks of 32 columns; vectors are made orthogonal once more and give the values."""
    batch, n, _ = a.shape
    scales, info = measure(a, lower=True)
    lower = torch.where((info == 0)[:, None, None], a.tril() * scales[:, None, None], 0.0)
    symmetric = lower + lower.tril(-1).mT
    norms = symmetric.square().sum((-2, -1)).sqrt()
    size = padded(n, 2 * BLOCK)
    m = a.new_zeros(batch, size, 2 * size)
    m[:, :n, :n] = symmetric
    # Padding has the lowest eigenvalues, and is the first to be left out.
    m.diagonal(dim1=-2, dim2=-1)[:, n:] = -4 * norms[:, None].clamp(min=1.0)
    m[:, :, size:] = torch.eye(size, device=a.device)
    busy = Rounds("eigh_block", m, norms, 0, two_sided=True).run()
    order = m.diagonal(dim1=-2, dim2=-1).argsort(dim=-1, stable=True)[:, size - n :]
    rows = order[:, :, None].expand(-1, -1, n)
    vectors = m[:, :, size : size + n].gather(1, rows).mT
    vectors = orthonormal(vectors)
    values = (vectors * product(symmetric, vectors)).sum(-2)
    values, order = values.sort(dim=-1, stable=True)
    vectors = vectors.gather(2, order[:, None, :].expand(-1, n, -1))
    return values / scales[:, None], vectors, torch.where(info < 0, info, busy * n)


def orthonormal(vectors: torch.Tensor) -> torch.Tensor:
    """One Newton-Schulz step, V (3 I - V' V) / 2: it squares what is missing to orthogonality."""
    gram = product(vectors.mT, vectors)
    identity = torch.eye(vectors.shape[-1], device=vectors.device)
    return product(vectors, (3 * identity - gram) / 2)
