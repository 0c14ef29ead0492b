"""Cholesky factors, and what is solved with them."""

from __future__ import annotations

import torch

from anymetal.linalg.matrices import (
    PANEL,
    SIMDGROUP,
    kernel_file,
    layout,
    padded,
    subtract_product,
)

KERNELS = kernel_file("cholesky.metal")
# Floats of a tile of cholesky_large.
_CAPACITY = 7680
# Rows below the diagonal block that a threadgroup solves for.
_HEIGHT = 96


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """L and info of a batch of matrices, of which the lower triangles are read."""
    batch, n, _ = a.shape
    info = torch.zeros(batch, dtype=torch.int32, device=a.device)
    if n <= SIMDGROUP or n * padded(n) <= _CAPACITY:
        lower = a.new_empty(batch, n, n)
        if lower.numel():
            _panel(a, lower, info, 0, n)
        return lower, info
    work, lower = a.clone(memory_format=torch.contiguous_format), a.new_zeros(batch, n, n)
    for start in range(0, n, PANEL):
        count = min(PANEL, n - start)
        _panel(work, lower, info, start, count)
        rest = lower[:, start + count :, start : start + count]
        subtract_product(work[:, start + count :, start + count :], rest, rest.mT)
    return lower, info


def _panel(
    a: torch.Tensor, lower: torch.Tensor, info: torch.Tensor, start: int, count: int
) -> None:
    batch, n, _ = a.shape
    below = n - start - count
    groups = max(1, -(-below // _HEIGHT))
    small = count <= SIMDGROUP and not below
    size = SIMDGROUP if small else 8 * SIMDGROUP
    KERNELS.kernel("cholesky_small" if small else "cholesky_large", a.device)(
        a,
        lower,
        info,
        [start, count, n, _HEIGHT, *layout(a), *layout(lower)],
        threads=(groups * size, batch),
        group_size=(size, 1),
    )
