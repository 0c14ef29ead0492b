"""Batches of small matrices: QR, Cholesky, solving, eigenvalues and singular values.

    python examples/linear_algebra.py

`anymetal.linalg` has torch.linalg's names and results. What is printed is the backward error in
units of float32's rounding: a few are as good as LAPACK.
"""

from __future__ import annotations

import torch

from anymetal import linalg

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
EPSILON = torch.finfo(torch.float32).eps


def backward_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference over the batch, relative to the matrix, in roundings."""
    found, wanted = found.cpu().double(), wanted.cpu().double()
    return float(((found - wanted).norm(dim=(-2, -1)) / wanted.norm(dim=(-2, -1))).max() / EPSILON)


def main() -> None:
    torch.manual_seed(0)
    a = torch.randn(100, 12, 12, device=DEVICE)
    b = torch.randn(100, 12, 3, device=DEVICE)
    positive = a @ a.mT + 12 * torch.eye(12, device=DEVICE)
    identity = torch.eye(12).expand(100, 12, 12)

    q, r = linalg.qr(a)
    lower = linalg.cholesky(positive)
    values, vectors = linalg.eigh(positive)
    u, s, vh = linalg.svd(a)
    well = positive / 12
    errors = {
        "qr": backward_error(q @ r, a),
        "q'q - 1": backward_error(q.mT @ q, identity),
        "cholesky": backward_error(lower @ lower.mT, positive),
        "solve": backward_error(well @ linalg.solve(well, b), b),
        "eigh": backward_error(vectors * values[:, None] @ vectors.mT, positive),
        "svd": backward_error(u * s[:, None] @ vh, a),
    }
    for name, error in errors.items():
        print(f"{name:9} {error:5.1f} roundings")
        if not error < 60:
            raise SystemExit(f"{name} is off by {error} roundings")

    try:
        linalg.cholesky(torch.diag(torch.tensor([1.0, -1.0], device=DEVICE)))
    except linalg.LinAlgError as error:
        print(f"a matrix that is not positive: {str(error).partition('(')[0].strip()}")
    else:
        raise SystemExit("a matrix that is not positive had a Cholesky factor")


if __name__ == "__main__":
    main()
