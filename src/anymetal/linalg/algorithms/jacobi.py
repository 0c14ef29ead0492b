"""What eigenvalues and singular values share: scaling, and rounds over pairs of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anymetal.linalg.algorithms.matrices import SIMDGROUP, kernel_file, layout, threads_of

KERNELS = kernel_file("jacobi.metal")
BLOCK = 32
# Sweeps before the first look at whether there is work left, and between later ones: a look waits
# for the device.
_FIRST_LOOK, _NEXT_LOOK, _MOST_SWEEPS = 4, 2, 24
_THREADS = 8 * SIMDGROUP


def measure(a: torch.Tensor, *, lower: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each matrix the power of two that brings its largest number to about 1; and info.

    info is -1 where a number is infinite or NaN. `lower` looks at the lower triangle only.
    """
    batch, m, n = a.shape
    scales = torch.ones(batch, device=a.device)
    info = torch.zeros(batch, dtype=torch.int32, device=a.device)
    if a.numel():
        KERNELS.kernel("measure", a.device)(
            a,
            scales,
            info,
            {"rows": m, "columns": n, "lower": lower, "a": layout(a)},
            threads=batch * _THREADS,
            group_size=_THREADS,
        )
    return scales, info


@dataclass
class Rounds:
    """Rounds of rotations over the rows of M, [batch, rows, columns], in blocks of 32.

    The kernel `name` finds the rotations of each pair of blocks; `two_sided` applies them to the
    first columns of M as well.
    """

    name: str
    m: torch.Tensor
    norms: torch.Tensor
    inner: int
    two_sided: bool

    def __post_init__(self) -> None:
        batch, rows, _ = self.m.shape
        self.blocks = rows // BLOCK
        pairs = self.blocks // 2
        self.jt = self.m.new_empty(batch, pairs, 2 * BLOCK, 2 * BLOCK)
        self.turned = torch.zeros(batch, pairs, dtype=torch.int32, device=self.m.device)
        self.busy = torch.zeros_like(self.turned)

    def run(self) -> torch.Tensor:
        """Sweeps until nothing is left to do; for each matrix whether something is."""
        for sweep in range(_MOST_SWEEPS):
            look = sweep >= _FIRST_LOOK and (sweep - _FIRST_LOOK) % _NEXT_LOOK == 0
            self.busy.zero_()
            for turn in range(self.blocks - 1):
                self._round(turn)
            if look and not bool(self.busy.any()):
                break
        return self.busy.amax(-1)

    def _round(self, turn: int) -> None:
        batch, rows, columns = self.m.shape
        pairs, device = self.blocks // 2, self.m.device
        size = threads_of("eigh" if self.two_sided else "svd", device)
        KERNELS.kernel(self.name, device)(
            self.m,
            self.jt,
            self.norms,
            self.busy,
            self.turned,
            self._shape(turn, self.m),
            threads=(pairs * size, batch),
            group_size=(size, 1),
        )
        self._rotate(turn, columns, self.m)
        if self.two_sided:
            self._rotate(turn, rows, self.m.mT)

    def _shape(self, turn: int, m: torch.Tensor) -> dict[str, Any]:
        sizes = {"blocks": self.blocks, "round": turn, "inner": self.inner}
        return {**sizes, "m": layout(m)}

    def _rotate(self, turn: int, columns: int, m: torch.Tensor) -> None:
        size = 4 * SIMDGROUP
        KERNELS.kernel("rotate_blocks", self.m.device)(
            self.m,
            self.jt,
            self.turned,
            self._shape(turn, m),
            threads=(columns // SIMDGROUP * size, self.blocks // 2, self.m.shape[0]),
            group_size=(size, 1, 1),
        )
