"""Matrices that factorisations find hard, and LAPACK's test ratios for what comes out.

`python tests/linalg/gallery.py` prints the worst ratios over the gallery beside torch's own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from anymetal import linalg

EPSILON = torch.finfo(torch.float32).eps
Ratios = dict[str, Tensor]  # by name, one number a matrix


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


# --- ratios --------------------------------------------------------------------------------------


def norm(matrix: Tensor) -> Tensor:
    """Frobenius, in float64; 1 for zero, so that it can be divided by."""
    value = torch.linalg.matrix_norm(matrix.double())
    return torch.where(value == 0, 1.0, value)


def orthogonality(q: Tensor) -> Tensor:
    n = q.shape[-1]
    gram = q.double().mT @ q.double()
    return torch.linalg.matrix_norm(gram - torch.eye(n)) / (max(n, 1) * EPSILON)


def residual(difference: Tensor, a: Tensor) -> Tensor:
    size = max(a.shape[-2:]) * EPSILON
    return torch.linalg.matrix_norm(difference) / (norm(a) * size)


def qr_ratios(a: Tensor, q: Tensor, r: Tensor) -> Ratios:
    return {
        "residual": residual(a.double() - q.double() @ r.double(), a),
        "orthogonality": orthogonality(q),
    }


def lu_ratios(a: Tensor, factors: Tensor, pivots: Tensor) -> Ratios:
    p, lower, upper = torch.lu_unpack(factors.double(), pivots)
    return {"residual": residual(a.double() - p @ lower @ upper, a)}


def cholesky_ratios(a: Tensor, lower: Tensor) -> Ratios:
    return {"residual": residual(a.double() - lower.double() @ lower.double().mT, a)}


def solve_ratios(a: Tensor, x: Tensor, b: Tensor) -> Ratios:
    """The backward error, over the columns together."""
    left = a.double() @ x.double() - b.double()
    size = norm(a) * norm(x) + norm(b)
    return {"backward": torch.linalg.matrix_norm(left) / (size * a.shape[-1] * EPSILON)}


def eigh_ratios(a: Tensor, values: Tensor, vectors: Tensor) -> Ratios:
    v, w = vectors.double(), values.double()
    exact = torch.linalg.eigvalsh(a.double())
    return {
        "residual": residual(a.double() @ v - v * w[..., None, :], a),
        "orthogonality": orthogonality(vectors),
        "values": values_error(w, exact),
    }


def svd_ratios(a: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Ratios:
    exact = torch.linalg.svdvals(a.double())
    k = s.shape[-1]
    product = (u.double()[..., :k] * s.double()[..., None, :]) @ vh.double()[..., :k, :]
    return {
        "residual": residual(a.double() - product, a),
        "left": orthogonality(u),
        "right": orthogonality(vh.mT),
        "values": values_error(s.double(), exact),
    }


def values_error(values: Tensor, exact: Tensor) -> Tensor:
    largest = exact.abs().amax(-1)
    largest = torch.where(largest == 0, 1.0, largest)
    return (values - exact).abs().amax(-1) / (largest * values.shape[-1] * EPSILON)


# --- the table -----------------------------------------------------------------------------------


def stacked(matrices: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(matrices.values()))


def judged(name: str, a: Tensor, module: object) -> Ratios:
    """The ratios of one function of `module`, ours or torch.linalg."""
    call: Callable[..., object] = getattr(module, name)
    if name == "qr":
        return qr_ratios(a, *call(a))
    if name == "lu_factor_ex":
        factors, pivots, _ = call(a)
        return lu_ratios(a, factors, pivots)
    if name == "eigh":
        return eigh_ratios(a, *call(a))
    if name == "svd":
        return svd_ratios(a, *call(a, full_matrices=False))
    if name == "cholesky":
        return cholesky_ratios(a, call(a))
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
