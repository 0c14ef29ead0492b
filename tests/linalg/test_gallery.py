"""LAPACK's test ratios over a gallery of matrices: at most 2, or four times torch's own."""

from __future__ import annotations

import pytest
import torch
from gallery import judged, matrices_for, stacked

from anymetal import linalg
from anymetal.linalg.ratios import orthogonality

SQUARE = [("cholesky", 5), ("cholesky", 33), ("solve", 32), ("solve", 40), ("eigh", 7)]
SQUARE += [("eigh", 32), ("eigh", 40), ("eigh", 97), ("cholesky", 97)]
ANY = [("lu_factor_ex", 6, 6), ("lu_factor_ex", 33, 17), ("lu_factor_ex", 97, 97)]
ANY += [("qr", 5, 5), ("qr", 17, 33), ("qr", 50, 31), ("qr", 97, 97), ("svd", 5, 5)]
ANY += [("svd", 33, 17), ("svd", 7, 32), ("svd", 40, 40)]


@pytest.mark.parametrize(("name", "m", "n"), [*((a, n, n) for a, n in SQUARE), *ANY])
def test_ratios_are_those_of_lapack(name: str, m: int, n: int) -> None:
    matrices = matrices_for(name, m, n)
    if name in ("eigh", "svd") and n >= 40:  # Jacobi takes a second for four; `make linalg` has all
        matrices = dict(list(matrices.items())[::4])
    a = stacked(matrices)
    ours, torchs = judged(name, a, linalg), judged(name, a, torch.linalg)
    for ratio, values in ours.items():
        for kind, value, theirs in zip(matrices, values, torchs[ratio], strict=True):
            assert value <= max(2.0, 4 * theirs), f"{name} {m}x{n} {kind}: {ratio} {value:.2f}"


def test_full_matrices_of_deficient_ones_are_orthogonal() -> None:
    a = stacked(matrices_for("svd", 9, 4))
    u, _, vh = linalg.svd(a)
    q, r = linalg.qr(a, mode="complete")
    assert u.shape == q.shape == (len(a), 9, 9)
    for square in (u, vh.mT, q):
        assert orthogonality(square).max() < 2
    assert torch.equal(r, r.triu())


def test_singular_values_descend_and_eigenvalues_ascend() -> None:
    a = stacked(matrices_for("eigh", 12, 12))
    assert (linalg.svdvals(a).diff() <= 0).all()
    assert (linalg.eigvalsh(a).diff() >= 0).all()


@pytest.mark.parametrize("name", ["cholesky", "lu_factor_ex", "qr", "eigh", "svd"])
def test_two_runs_and_a_matrix_alone_give_the_same_bits(name: str) -> None:
    a = stacked(matrices_for(name, 13, 13))
    call = getattr(linalg, name)
    together, again, alone = call(a), call(a), call(a[3])
    if isinstance(together, torch.Tensor):
        together, again, alone = [together], [again], [alone]
    for one, two, single in zip(together, again, alone, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one[3], single)
