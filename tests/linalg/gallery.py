"""Matrices that factorisations find hard, beside LAPACK's test ratios of what comes out.

`python tests/linalg/gallery.py` prints the worst ratios over the gallery beside torch's own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from anymetal import linalg
from anymetal.linalg import ratios


def _with_values(m: int, n: int, values: Tensor) -> Tensor:
    left = torch.linalg.qr(torch.randn(m, min(m, n)))[0]
    right = torch.linalg.qr(torch.randn(n, min(m, n)))[0]
    return (left * values) @ right.mT


def gallery(m: int, n: int) -> dict[str, Tensor]:
    """Matrices of one shape by name; the same numbers every time."""
    torch.manual_seed(1000 * m + n)
    k = min(m, n)
    plain = torch.randn(m, n)
    graded = _with_values(m, n, torch.logspace(0, -6, k))
    clustered = _with_values(m, n, 1 + 1e-6 * torch.arange(k))
    half = max(1, k // 2)
    rank = torch.randn(m, half) @ torch.randn(half, n)
    zero_column = plain.clone()
    zero_column[:, n // 2] = 0
    steps = torch.logspace(0, -30, n)
    hilbert = 1.0 / (torch.arange(m)[:, None] + torch.arange(n) + 1)
    return {
        "random": plain,
        "graded": graded,
        "clustered": clustered,
        "rank deficient": rank,
        "zero": torch.zeros(m, n),
        "3 I": 3 * torch.eye(m, n),
        "x 1e-28": plain * 1e-28,
        "x 1e28": plain * 1e28,
        "zero column": zero_column,
        "equal columns": plain[:, :1].expand(m, n).clone(),
        "hilbert": hilbert,
        "graded columns": plain * steps,
        "graded rows": plain * torch.logspace(0, -30, m)[:, None],
        "orthogonal": _with_values(m, n, torch.ones(k)),
        "ones and noise": 1 + 1e-6 * plain,
        "lower ones": torch.ones(m, n).tril() - 2 * torch.ones(m, n).tril(-1),
    }


def symmetric_gallery(n: int) -> dict[str, Tensor]:
    matrices = {name: (a / 2 + a.mT / 2) for name, a in gallery(n, n).items()}
    vectors = torch.linalg.qr(torch.randn(n, n))[0]
    matrices["plus and minus one"] = (vectors * (-1.0) ** torch.arange(n)) @ vectors.mT
    matrices["wilkinson"] = torch.diag((torch.arange(n) - (n - 1) / 2).abs()) + (
        torch.ones(n - 1).diag(1) + torch.ones(n - 1).diag(-1) if n > 1 else torch.zeros(n, n)
    )
    return {name: (a + a.mT) / 2 for name, a in matrices.items()}


def positive_gallery(n: int) -> dict[str, Tensor]:
    """Positive definite beyond doubt in float32."""
    torch.manual_seed(n)
    plain = torch.randn(n, n)
    good = plain @ plain.mT / n + torch.eye(n)
    steps = torch.logspace(0, -12, n)
    return {
        "random": good,
        "graded": good * steps * steps[:, None],
        "3 I": 3 * torch.eye(n),
        "x 1e-28": good * 1e-28,
        "x 1e28": good * 1e28,
        "ones": torch.ones(n, n) + torch.eye(n),
        "second differences": 2 * torch.eye(n)
        - torch.eye(n).roll(1, 0).tril(-1)
        - torch.eye(n).roll(-1, 0).triu(1),
    }


def solve_ratios(a: Tensor, x: Tensor, b: Tensor) -> ratios.Ratios:
    """The backward error, over the columns together."""
    left = a.double() @ x.double() - b.double()
    size = ratios.norm(a) * ratios.norm(x) + ratios.norm(b)
    return {"backward": torch.linalg.matrix_norm(left) / (size * a.shape[-1] * ratios.EPSILON)}


# --- the table -----------------------------------------------------------------------------------


def stacked(matrices: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(matrices.values()))


def judged(name: str, a: Tensor, module: object) -> ratios.Ratios:
    """The ratios of one function of `module`, ours or torch.linalg."""
    call: Callable[..., object] = getattr(module, name)
    if name == "qr":
        return ratios.of_qr(a, *call(a))
    if name == "lu_factor_ex":
        factors, pivots, _ = call(a)
        return ratios.of_lu_factors(a, factors, pivots)
    if name == "eigh":
        return ratios.of_eigh(a, *call(a))
    if name == "svd":
        return ratios.of_svd(a, *call(a, full_matrices=False))
    if name == "cholesky":
        return ratios.of_cholesky(a, call(a))
    b = torch.randn(*a.shape[:-1], 3, generator=torch.Generator().manual_seed(1))
    return solve_ratios(a, call(a, b), b)


def matrices_for(name: str, m: int, n: int) -> dict[str, Tensor]:
    if name == "eigh":
        return symmetric_gallery(n)
    if name in ("cholesky", "solve"):
        return positive_gallery(n)
    return gallery(m, n)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=["5", "16", "32", "33x17", "64", "130"])
    sizes = parser.parse_args().sizes
    failed = 0
    for name in ("cholesky", "lu_factor_ex", "solve", "qr", "eigh", "svd"):
        for size in sizes:
            m, n = (int(part) for part in (size.split("x") * 2)[:2])
            if m != n and name in ("cholesky", "solve", "eigh"):
                continue
            a = stacked(matrices_for(name, m, n))
            ours, torchs = judged(name, a, linalg), judged(name, a, torch.linalg)
            words = []
            for ratio, values in ours.items():
                theirs = torchs[ratio]
                failed += int((values > theirs.mul(4).clamp(min=2.0)).any())
                words.append(f"{ratio} {values.max():.2f} ({theirs.max():.2f})")
            print(f"{name:13} {m}x{n}: {', '.join(words)}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
