"""Singular values and vectors: two QRs, then one-sided Jacobi rotations."""

from __future__ import annotations

import torch

from anymetal.linalg.algorithms import qr
from anymetal.linalg.algorithms.eigh import orthonormal
from anymetal.linalg.algorithms.jacobi import BLOCK, KERNELS, Rounds, measure
from anymetal.linalg.algorithms.matrices import SIMDGROUP, layout, padded

_SIZES = (8, 16, 32)
_EPSILON = 2.0**-23


def solve(
    a: torch.Tensor, *, full: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """U, S, V' and info of a batch of matrices; as `full` as torch.linalg.svd's."""
    batch, m, n = a.shape
    if m < n:
        u, s, vt, info = solve(a.mT, full=full)
        return vt.mT, s, u.mT, info
    scales, info = measure(a)
    scaled = torch.where((info == 0)[:, None, None], a * scales[:, None, None], 0.0)
    first, first_tau = qr.factor(scaled)
    second, second_tau = qr.factor(first[:, :n].triu().mT)
    w, s, j, missed = columns(second.triu().mT)
    left = completed(w)
    if full:
        wide = torch.eye(m, device=a.device).repeat(batch, 1, 1)
        wide[:, :n, :n] = left
    else:
        wide = a.new_zeros(batch, m, n)
        wide[:, :n] = left
    u = qr.reflect(first, first_tau, wide)
    v = qr.reflect(second, second_tau, j)
    return u, s / scales[:, None], v.mT, torch.where(info < 0, info, missed)


def columns(
    x: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """X J = W S: W, S in descending order, J and info. Columns of W for zeros in S are zero."""
    batch, n, _ = x.shape
    info = torch.zeros(batch, dtype=torch.int32, device=x.device)
    w, s, j = (x.new_empty(batch, n, n), x.new_empty(batch, n), x.new_empty(batch, n, n))
    if x.numel() == 0:
        return w, s, j, info
    if n > _SIZES[-1]:
        return _blocked(x)
    size = next(size for size in _SIZES if size >= n)
    together = SIMDGROUP // size
    KERNELS.kernel("svd_columns", x.device)(
        x,
        w,
        s,
        j,
        info,
        {
            "n": n,
            "size": size,
            "matrices": batch,
            "x": layout(x),
            "w": layout(w),
            "j": layout(j),
        },
        threads=-(-batch // together) * SIMDGROUP,
        group_size=SIMDGROUP,
    )
    return w, s, j, info


def _blocked(
    x: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, n, _ = x.shape
    size = padded(n, 2 * BLOCK)
    m = x.new_zeros(batch, size, 2 * size)
    m[:, :n, :n] = x.mT
    m[:, :, size:] = torch.eye(size, device=x.device)
    norms = x.square().sum(-2).amax(-1)
    busy = Rounds("svd_block", m, norms, size, two_sided=False).run()
    # Padding has no part in any rotation; a row of J' tells it from columns that are zero.
    lengths = m[:, :, :n].square().sum(-1).sqrt()
    padding = m[:, :, size + n :].abs().amax(-1) > 0 if size > n else lengths < 0
    order = torch.where(padding, -1.0, lengths).argsort(dim=-1, descending=True, stable=True)
    rows = order[:, :n, None].expand(-1, -1, n)
    j = orthonormal(m[:, :, size : size + n].gather(1, rows).mT)
    turned = m[:, :, :n].gather(1, rows)
    s = lengths.gather(1, order[:, :n])
    alive = s > 4 * _EPSILON * s[:, :1]
    w = torch.where(alive[:, :, None], turned / s[:, :, None], 0.0).mT
    return w, s, j, busy * n


def completed(w: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns that agree with those of W that are not zero."""
    r, tau = qr.factor(w)
    q = qr.orthogonal(r, tau, torch.empty_like(r))
    return torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)[:, None, :] * q
