"""Names, shapes, dtypes, named tuples and errors: what torch.linalg does with the same call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anymetal
from anymetal import linalg
from anymetal.launch.guarded import watched

NAN = float("nan")


def positive(*shape: int) -> Tensor:
    a = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return a @ a.mT + shape[-1] * torch.eye(shape[-1])


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def torchs(name: str) -> Callable[..., Any]:
    return getattr(torch.linalg, name, None) or getattr(torch, name)


def tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def same(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    assert type(ours) is type(theirs)
    for mine, other in zip(tensors(ours), tensors(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


A, P, B = random(2, 6, 6) + 4 * torch.eye(6), positive(2, 6, 6), random(2, 6, 3)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("cholesky", (P,), {"upper": True}),
    ("cholesky_ex", (P,), {}),
    ("cholesky_solve", (B, torch.linalg.cholesky(P)), {}),
    ("cholesky_solve", (B, torch.linalg.cholesky(P, upper=True)), {"upper": True}),
    ("cholesky_inverse", (torch.linalg.cholesky(P),), {}),
    ("lu", (A,), {}),
    ("lu", (A[..., :4],), {}),
    ("lu_factor", (A,), {}),
    ("lu_factor_ex", (A[:, :3],), {}),
    ("lu_solve", (*torch.linalg.lu_factor(A), B), {}),
    ("solve", (A, B), {}),
    ("solve", (A, B[0, :, 0]), {}),
    ("solve", (A, B[..., 0]), {}),
    ("solve", (A[0], B.mT), {"left": False}),
    ("solve_ex", (A, B), {}),
    ("inv", (A,), {}),
    ("inv_ex", (A,), {}),
    ("det", (A,), {}),
    ("slogdet", (A,), {}),
    ("geqrf", (A,), {}),
    ("qr", (A[..., :4],), {}),
    ("qr", (A,), {"mode": "r"}),
    ("qr", (A[..., :3],), {"mode": "complete"}),
    ("eigvalsh", (P,), {}),
    ("svdvals", (A,), {}),
    ("pinv", (A[..., :3],), {}),
    ("pinv", (P,), {"hermitian": True}),
    ("pinv", (A[..., :3],), {"atol": torch.tensor([0.1, 0.2])}),
    ("matrix_rank", (A[:, :, :1] @ A[:, :1],), {}),
    ("matrix_rank", (P,), {"hermitian": True, "atol": 1e-3}),
    ("lstsq", (A[..., :3], B), {}),
    ("lstsq", (A[..., :3], B), {"driver": "gelsd"}),
    ("lstsq", (A[..., :3], B), {"driver": "gels"}),
    ("lstsq", (A[:, :3], B[:, :3]), {"driver": "gels"}),
    ("lstsq", (A[..., :1] @ A[:, :1], B), {"driver": "gelsd", "rcond": 1e-4}),
    ("cond", (A,), {}),
    *(("cond", (A,), {"p": p}) for p in (-2, 1, "fro", "nuc", -torch.inf)),
    *(("matrix_norm", (A,), {"ord": p}) for p in ("fro", "nuc", 2, -2, 1, -1, torch.inf)),
    ("matrix_norm", (A, 2, (0, 1), True), {}),
    ("matrix_exp", (A,), {}),
]


@pytest.mark.parametrize(("name", "args", "keywords"), CALLS)
def test_result_is_torchs(name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    same(getattr(linalg, name)(*args, **keywords), torchs(name)(*args, **keywords))


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_vectors_come_in_torchs_named_tuple(name: str) -> None:
    ours, theirs = getattr(linalg, name)(P), torchs(name)(P)
    assert type(ours) is type(theirs)
    assert [t.shape for t in ours] == [t.shape for t in theirs]


def test_all_triangles_and_sides() -> None:
    full = random(33, 33) + 8 * torch.eye(33)
    for upper in (True, False):
        for left in (True, False):
            for unitriangular in (True, False):
                a = full / 16 if unitriangular else full
                b = random(2, 33, 5) if left else random(2, 5, 33)
                keywords = {"upper": upper, "left": left, "unitriangular": unitriangular}
                other = a.tril(-1) if upper else a.triu(1)
                poisoned = torch.where(other != 0, NAN, a)
                same(
                    linalg.solve_triangular(poisoned, b, **keywords),
                    torch.linalg.solve_triangular(a, b, **keywords),
                )


def test_other_triangle_is_never_read() -> None:
    lower = torch.where(torch.ones(6, 6).triu(1) > 0, NAN, P)
    same(linalg.cholesky(lower), torch.linalg.cholesky(P))
    same(linalg.eigvalsh(lower), torch.linalg.eigvalsh(P))
    same(linalg.eigvalsh(lower.mT, UPLO="U"), torch.linalg.eigvalsh(P))
    large = positive(70, 70)
    lower = torch.where(torch.ones(70, 70).triu(1) > 0, NAN, large)
    same(linalg.eigvalsh(lower), torch.linalg.eigvalsh(large), 1e-4)


SIZES = [(0, 0), (0, 3), (3, 0), (2, 0, 4), (0, 3, 3), (1, 1), (0, 0, 2, 2)]


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_empty_and_single_matrices(shape: tuple[int, ...]) -> None:
    a = random(*shape)
    for name in ("qr", "svd", "lu", "lu_factor", "pinv", "matrix_rank", "geqrf"):
        ours, theirs = getattr(linalg, name)(a), torchs(name)(a)
        assert [t.shape for t in tensors(ours)] == [t.shape for t in tensors(theirs)], name
    if shape[-1] == shape[-2]:
        for name in ("inv", "det", "slogdet", "eigh", "matrix_exp"):
            same(getattr(linalg, name)(a + 1), torchs(name)(a + 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_narrow_dtypes_are_computed_in_float32(dtype: torch.dtype) -> None:
    a, b = A.to(dtype), B.to(dtype)
    for name, args in (("solve", (a, b)), ("inv", (a,)), ("svdvals", (a,)), ("pinv", (a,))):
        ours = getattr(linalg, name)(*args)
        assert ours.dtype is dtype
        exact = torchs(name)(*(arg.float() for arg in args))
        torch.testing.assert_close(ours, exact.to(dtype), rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        (torch.float64, "an Apple GPU has no doubles"),
        (torch.complex64, "no complex kernels"),
        (torch.int32, "fractions"),
    ],
)
def test_other_dtypes_are_refused_with_a_reason(dtype: torch.dtype, reason: str) -> None:
    a = torch.eye(3).to(dtype)
    for name in ("cholesky", "inv", "qr", "svd", "eigh", "det", "matrix_exp", "matrix_norm"):
        with pytest.raises(TypeError, match=f"{name}.*: argument 'A' .*{reason}"):
            getattr(linalg, name)(a)


SINGULAR = torch.stack([torch.eye(3), torch.zeros(3, 3)])
FAILURES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("cholesky", (-torch.eye(3),), {}),
    ("cholesky", (SINGULAR,), {}),
    ("cholesky", (torch.full((3, 3), NAN),), {}),
    ("cholesky_ex", (SINGULAR,), {"check_errors": True}),
    ("inv", (SINGULAR,), {}),
    ("inv_ex", (torch.zeros(2, 2),), {"check_errors": True}),
    ("solve", (SINGULAR, torch.ones(3, 1)), {}),
    ("solve_ex", (torch.zeros(2, 2), torch.ones(2)), {"check_errors": True}),
    ("lu_factor", (SINGULAR,), {}),
    ("lu_factor_ex", (SINGULAR,), {"check_errors": True}),
    ("svd", (torch.full((3, 3), NAN),), {}),
    ("pinv", (torch.full((3, 3), NAN),), {}),
    ("cholesky", (torch.ones(3),), {}),
    ("cholesky", (torch.ones(3, 4),), {}),
    ("inv", (torch.ones(3, 4),), {}),
    ("det", (torch.ones(3, 4),), {}),
    ("slogdet", (torch.ones(3, 4),), {}),
    ("eigh", (torch.ones(3, 4),), {}),
    ("svd", (torch.ones(3),), {}),
    ("solve", (torch.ones(3, 3), torch.ones(4, 1)), {}),
    ("solve_triangular", (torch.ones(3, 3), torch.ones(4, 1)), {"upper": True}),
    ("householder_product", (torch.ones(3, 4), torch.ones(3)), {}),
    ("qr", (torch.eye(2),), {"mode": "X"}),
    ("eigh", (torch.eye(2),), {"UPLO": "X"}),
    ("matrix_exp", (torch.ones(3, 4),), {}),
    ("svd", (torch.eye(2),), {"driver": "gesvd"}),
]


@pytest.mark.parametrize(("name", "args", "keywords"), FAILURES)
def test_failures_are_in_torchs_words(
    name: str, args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torchs(name)(*args, **keywords)
    with pytest.raises(type(theirs.value)) as ours:
        getattr(linalg, name)(*args, **keywords)
    assert str(ours.value) == str(theirs.value)


def test_eigh_says_what_is_not_finite() -> None:
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 2, 0] = torch.inf
    with pytest.raises(linalg.LinAlgError, match=r"\(Batch element 1\): .* non-finite values"):
        linalg.eigh(a)
    large = torch.eye(70)
    large[5, 2] = NAN
    with pytest.raises(linalg.LinAlgError, match="non-finite"):
        linalg.eigh(large)
    for function in (linalg.svd, linalg.svdvals, linalg.pinv, linalg.cond):
        with pytest.raises(linalg.LinAlgError, match="non-finite"):
            function(torch.full((2, 3), torch.inf))


def test_info_names_the_first_failure() -> None:
    assert linalg.cholesky_ex(torch.diag(torch.tensor([1.0, -1.0, -1.0]))).info == 2
    assert linalg.lu_factor_ex(torch.diag(torch.tensor([1.0, 0.0, 2.0]))).info == 2
    large = torch.eye(100)
    large[70, 70] = -1
    assert linalg.cholesky_ex(large).info == 71
    large[70, 70] = 0
    assert linalg.inv_ex(large).info == 71


def test_large_kernels_are_silent_under_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    """In-place updates of a panel write a part of the matrix, as they should."""
    monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")  # no finding depends on optimisation
    a = random(100, 100) + 10 * torch.eye(100)
    calls = (
        lambda: linalg.cholesky(a @ a.mT),
        lambda: linalg.inv(a),
        lambda: linalg.qr(a[:, :70]),
        lambda: linalg.eigh(a[:40, :40]),
        lambda: linalg.svd(a[:40, :40]),
    )
    with anymetal.check(outputs=()) as report:
        for call in calls:
            call()
    assert not report.findings, report


def test_gradient_of_det_at_a_singular_matrix_is_its_cofactors() -> None:
    a = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(linalg.det(a), a)
    cofactors = torch.tensor([[4.0, 4.0, -4.0], [-2.0, -2.0, 2.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(gradient, cofactors, rtol=1e-4, atol=1e-4)


def test_functions_of_operators_differentiate() -> None:
    """Those that are made of operators: cholesky_solve, cholesky_inverse, cond and norms."""
    lower = torch.linalg.cholesky(P)
    for name, args in (
        ("cholesky_solve", (B, lower)),
        ("cholesky_inverse", (lower,)),
        ("cond", (A,)),
        ("matrix_norm", (A, "nuc")),
        ("lu", (A,)),
    ):
        found = []
        for module, dtype in ((linalg, torch.float32), (None, torch.float64)):
            call = getattr(module, name) if module else torchs(name)
            leaves = [a.to(dtype).requires_grad_() if isinstance(a, Tensor) else a for a in args]
            total = sum(t.sin().sum() for t in tensors(call(*leaves)))
            wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            found.append(torch.autograd.grad(total, wanted))
        for ours, exact in zip(*found, strict=True):
            # torch gives numbers for the triangle of a factor that nobody reads, too.
            read = (
                exact.tril()
                if name.startswith("cholesky") and exact.shape[-2:] == (6, 6)
                else exact
            )
            torch.testing.assert_close(ours, read.float(), rtol=1e-3, atol=1e-4)


def test_svd_lowrank_finds_a_matrix_of_low_rank() -> None:
    a = random(20, 3) @ random(3, 12)
    torch.manual_seed(5)
    u, s, v = linalg.svd_lowrank(a, q=4)
    torch.manual_seed(5)
    again = linalg.svd_lowrank(a, q=4)
    assert all(torch.equal(x, y) for x, y in zip((u, s, v), again, strict=True))
    torch.testing.assert_close((u * s) @ v.mT, a, rtol=1e-4, atol=1e-4)
    assert [t.shape for t in linalg.svd_lowrank(a.mT, q=2)] == [(12, 2), (2,), (20, 2)]


def test_compiled_function_is_the_same() -> None:
    def function(a: Tensor) -> Tensor:
        q, r = linalg.qr(a)
        return linalg.solve(a, q).sum() + linalg.svdvals(r).sum()

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(A), function(A), rtol=0, atol=0)
    torch._dynamo.reset()


def test_launches_a_panel() -> None:
    a = random(160, 160) + 13 * torch.eye(160)
    for call in (
        lambda: linalg.cholesky(a @ a.mT),
        lambda: linalg.lu_factor(a),
        lambda: linalg.geqrf(a),
    ):
        with watched() as launches:
            call()
        assert len(launches) <= 4 * 5
