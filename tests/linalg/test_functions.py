"""Names, shapes, dtypes, named tuples and errors: what torch.linalg does with the same call."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anymetal
from anymetal import linalg
from anymetal.launch.guarded import watched
from anymetal.linalg.algorithms import eigh, jacobi
from anymetal.ops.declare.kernel_file import KernelFile

NAN = float("nan")
# Columns of matrices that are cut into panels: one size for all, as kernels of products depend on
# it. `make linalg` has more.
LARGE = 97


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
    ("pinv", (A[..., :3], 0.4), {}),
    ("pinv", (P, 1e-3, True), {}),
    ("matrix_rank", (A[:, :, :1] @ A[:, :1],), {}),
    ("matrix_rank", (P,), {"hermitian": True, "atol": 1e-3}),
    ("matrix_rank", (P, 4.0, True), {}),
    ("matrix_rank", (A,), {"tol": torch.tensor([0.5, 2.0])}),
    ("lstsq", (A[..., :3], B), {}),
    ("lstsq", (A[..., :3], B), {"driver": "gelsd"}),
    ("lstsq", (A[..., :3], B), {"driver": "gels"}),
    ("lstsq", (A[:, :3], B[:, :3]), {"driver": "gels"}),
    ("lstsq", (A[..., :0], B), {"driver": "gels"}),
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
    large = near_diagonal(LARGE)
    lower = torch.where(torch.ones(LARGE, LARGE).triu(1) > 0, NAN, large)
    same(linalg.eigvalsh(lower), torch.linalg.eigvalsh(large), 1e-4)


FUNCTIONS = [name for name in linalg.__all__ if name != "LinAlgError"]
SIZES = [(0, 0), (0, 3), (3, 0), (2, 0, 4), (0, 3, 3), (1, 1), (0, 0, 2, 2)]


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_empty_and_single_matrices(shape: tuple[int, ...]) -> None:
    a = random(*shape)
    for name in ("qr", "svd", "lu", "lu_factor", "pinv", "matrix_rank", "geqrf"):
        ours, theirs = getattr(linalg, name)(a), torchs(name)(a)
        assert [t.shape for t in tensors(ours)] == [t.shape for t in tensors(theirs)], name
    for norm in ("fro", "nuc", 2, 1, torch.inf):
        same(linalg.matrix_norm(a, norm), torch.linalg.matrix_norm(a, norm))
        if a.numel() == 0:
            same(linalg.cond(a, norm if norm != 2 else None), a.new_zeros(shape[:-2]))
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
    pivots = torch.ones(3, dtype=torch.int32)
    others = {"lu_solve": (pivots, a), "ormqr": (a[0], a), "householder_product": (a[0],)}
    others |= dict.fromkeys(("cholesky_solve", "lstsq", "solve", "solve_ex"), (a,))
    for name in FUNCTIONS:
        keywords = {"upper": True} if name == "solve_triangular" else {}
        given = (a, a) if name == "solve_triangular" else (a, *others.get(name, ()))
        with pytest.raises(TypeError, match=rf": argument '\w+' .*{reason}"):
            getattr(linalg, name)(*given, **keywords)


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
    ("svd", (torch.where(SINGULAR == 1, NAN, SINGULAR),), {}),
    ("lu", (torch.eye(2),), {"pivot": False}),
    ("lu_factor", (torch.eye(2),), {"pivot": False}),
    ("lu_factor_ex", (torch.eye(2),), {"pivot": False}),
    ("lstsq", (torch.eye(2), torch.eye(2)), {"driver": "gelsx"}),
]


def _ones(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.ones(shape) for shape in shapes)


_SIX, _RIGHT, _PIVOTS = (2, 6, 6), (2, 6, 3), torch.ones(2, 6, dtype=torch.int32)
_LU = torch.eye(6).repeat(2, 1, 1)
# Shapes, dtypes and options that do not go together.
FAILURES += [
    *((name, _ones((3,)), {}) for name in ("cholesky_ex", "lu", "lu_factor", "lu_factor_ex")),
    *((name, _ones((3,)), {}) for name in ("geqrf", "qr", "pinv", "matrix_rank", "cond", "inv_ex")),
    *((name, _ones((3,)), {}) for name in ("svdvals", "eigvalsh", "det", "slogdet", "matrix_exp")),
    *((name, _ones((3,)), {}) for name in ("cholesky_inverse", "matrix_norm", "inv", "eigh")),
    *((name, _ones((3, 4)), {}) for name in ("cholesky_ex", "inv_ex", "cholesky_inverse")),
    *((name, _ones((3, 4)), {"hermitian": True}) for name in ("pinv", "matrix_rank")),
    *(("cholesky_solve", _ones(b, (6, 6)), {}) for b in ((6,), (5, 3))),
    *(("cholesky_solve", _ones((6, 3), factor), {}) for factor in ((3,), (6, 5))),
    ("cholesky_solve", (torch.ones(6, 3), torch.eye(6).double()), {}),
    ("cholesky_solve", _ones((3, 6, 3), _SIX), {}),
    ("lu_solve", (torch.ones(3), _PIVOTS, torch.ones(_RIGHT)), {}),
    ("lu_solve", (torch.ones(2, 6, 5), _PIVOTS, torch.ones(_RIGHT)), {}),
    *(
        ("lu_solve", (_LU, pivots, torch.ones(_RIGHT)), {})
        for pivots in (_PIVOTS.float(), _PIVOTS[:, :5], _PIVOTS[0])
    ),
    *(("lu_solve", (_LU, _PIVOTS, b), {}) for b in _ones((6,), (5, 3), (3, 6, 3))),
    ("lu_solve", (_LU, _PIVOTS, torch.ones(6, 3).double()), {}),
    *(("solve", _ones(_SIX, b), {}) for b in ((3, 5, 7), (), (3, 6, 3))),
    ("solve", (torch.ones(_SIX), torch.ones(_RIGHT).double()), {}),
    *(("solve_ex", _ones(a, _RIGHT), {}) for a in ((3,), (6, 5))),
    *(("solve_triangular", _ones(a, _RIGHT), {"upper": True}) for a in ((3,), (6, 5))),
    *(("solve_triangular", _ones(_SIX, b), {"upper": True}) for b in ((6,), (5, 3), (3, 6, 3))),
    ("householder_product", _ones((3,), (3,)), {}),
    *(("householder_product", _ones((2, 6, 3), tau), {}) for tau in ((2, 5), (3,), (4, 3))),
    ("householder_product", (torch.ones(6, 3), torch.ones(3).double()), {}),
    *(("ormqr", _ones(_SIX, tau, _RIGHT), {}) for tau in ((3, 6), (2, 7), (6,))),
    *(("ormqr", _ones(_SIX, (2, 6), b), {}) for b in ((6,), (2, 5, 3), (3, 6, 3), (6, 3))),
    ("ormqr", _ones((3,), (3,), _RIGHT), {}),
    ("ormqr", _ones(_SIX, (2, 6), (2, 3, 5)), {"left": False}),
    ("ormqr", (*_ones(_SIX, (2, 6)), torch.ones(_RIGHT).double()), {}),
    ("ormqr", (torch.ones(_SIX), torch.ones(2, 6).double(), torch.ones(_RIGHT)), {}),
    *(("lstsq", _ones(a, _RIGHT), {}) for a in ((3,), (6, 4), (3, 1, 6, 4))),
    *(("lstsq", _ones(_SIX, b), {}) for b in ((), (2, 5, 3), (2, 5), (6,), (6, 3), (3, 6, 3))),
    ("lstsq", (torch.ones(_SIX), torch.ones(_RIGHT).double()), {}),
    *(("cond", (torch.eye(2),), {"p": p}) for p in ("x", 3)),
    *(("cond", _ones((2, 3)), {"p": p}) for p in ("nuc", 1)),
    *(("matrix_norm", (A, 2, dim), {}) for dim in ((0,), (0, 0), (1, -2))),
    ("matrix_norm", (A, "x"), {}),
    ("svdvals", (torch.eye(2),), {"driver": "gesvd"}),
    ("pinv", (torch.eye(3),), {"rtol": torch.tensor(1j)}),
    ("matrix_rank", (torch.eye(3),), {"atol": torch.tensor(1j)}),
    ("matrix_norm", (A, 2, (0, 5)), {}),
    ("matrix_norm", (torch.ones(0, 3), -torch.inf), {}),
    ("inv", ([1, 2],), {}),
    ("cholesky_ex", (SINGULAR[None].expand(3, 2, 3, 3),), {"check_errors": True}),
]


@pytest.mark.parametrize(("name", "args", "keywords"), FAILURES)
def test_failures_are_in_torchs_words(
    name: str, args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises((RuntimeError, IndexError, TypeError)) as theirs:
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
    large = torch.eye(LARGE)
    large[70, 70] = -1
    assert linalg.cholesky_ex(large).info == 71
    large[70, 70] = 0
    assert linalg.inv_ex(large).info == 71


def near_diagonal(n: int) -> Tensor:
    """Symmetric, and so near to its eigenvalues that few sweeps are left to do."""
    a = 1e-4 * random(n, n) + torch.diag(torch.arange(1.0, n + 1))
    return a + a.mT


def test_large_kernels_are_silent_under_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    """In-place updates of a panel write a part of the matrix, as they should."""
    monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")  # no finding depends on optimisation
    for module in (jacobi, eigh):  # as on a GPU; a CPU takes one simdgroup
        monkeypatch.setattr(module, "threads_of", lambda operator, device: 256)
    a = random(LARGE, LARGE) + 10 * torch.eye(LARGE)
    calls = (
        lambda: linalg.cholesky(a @ a.mT),
        lambda: linalg.inv(a),
        lambda: linalg.qr(a[:, :70]),
        lambda: linalg.eigh(near_diagonal(33)),
        lambda: linalg.svd(near_diagonal(33)),
    )
    with anymetal.check(outputs=()) as report:
        for call in calls:
            call()
    assert not report.findings, report


def test_packed_matrices_are_silent_under_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several matrices in a simdgroup, a full one and one with lanes to spare."""
    monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")
    with anymetal.check(outputs=()) as report:
        for a in (positive(5, 8, 8), positive(5, 8, 8).mT, positive(5, 7, 7)):
            linalg.cholesky(a)
            linalg.solve(a, a[..., :1])
            linalg.inv(a)
            linalg.qr(a)
    assert not report.findings, report


ENGINE_CALLS: tuple[Callable[[], Any], ...] = (
    lambda: linalg.cholesky(positive(3, 8, 8)),
    lambda: linalg.solve(positive(3, 8, 8), random(3, 8, 1)),
    lambda: linalg.lu_factor(random(3, 7, 7)),
    lambda: linalg.qr(random(3, 8, 8)),
    lambda: linalg.eigh(positive(3, 8, 8)),
    lambda: linalg.svd(random(3, 8, 8)),
    lambda: linalg.cholesky(positive(81, 81)),
    lambda: linalg.lu_factor(random(81, 81)),
    lambda: linalg.geqrf(random(81, 70)),
)


def test_both_engines_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct methods of small matrices; with ANYMETAL_TEST_ALL=1 (`make thorough`) all."""
    found = []
    calls = ENGINE_CALLS if os.environ.get("ANYMETAL_TEST_ALL") == "1" else ENGINE_CALLS[:4]
    for engine in ("coroutine", "simdgroup"):
        monkeypatch.setenv("ANYMETAL_ENGINE", engine)
        forget_kernels()
        found.append([tensors(call()) for call in calls])
    forget_kernels()
    for one, other in zip(*found, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def forget_kernels() -> None:
    """Kernels that this process has compiled for the engine it had."""
    for cached in (KernelFile._guarded, KernelFile._instance, KernelFile._library):
        cached.cache_clear()


def test_svd_lowrank_finds_a_matrix_of_low_rank() -> None:
    a = random(20, 3) @ random(3, 12)
    torch.manual_seed(5)
    u, s, v = linalg.svd_lowrank(a, q=4)
    torch.manual_seed(5)
    again = linalg.svd_lowrank(a, q=4)
    assert all(torch.equal(x, y) for x, y in zip((u, s, v), again, strict=True))
    torch.testing.assert_close((u * s) @ v.mT, a, rtol=1e-4, atol=1e-4)
    assert [t.shape for t in linalg.svd_lowrank(a.mT, q=2)] == [(12, 2), (2,), (20, 2)]


def test_launches_a_panel() -> None:
    """At most four of 32 columns, the whole of a call; in `make thorough` for 1024 columns."""
    n = 1024 if os.environ.get("ANYMETAL_TEST_ALL") == "1" else LARGE
    a = random(n, n) + 2 * n**0.5 * torch.eye(n)
    for call in (
        lambda: linalg.cholesky(a + a.mT),
        lambda: linalg.lu_factor(a),
        lambda: linalg.geqrf(a),
        lambda: linalg.qr(a),
    ):
        with watched() as launches:
            call()
        assert len(launches) <= 4 * -(-n // 32)


def test_two_runs_of_blocked_algorithms_give_the_same_bits() -> None:
    a = random(LARGE, LARGE) + 10 * torch.eye(LARGE)
    for call in (
        lambda: linalg.cholesky(a @ a.mT),
        lambda: linalg.solve(a, a[:, :3]),
        lambda: linalg.qr(a),
        lambda: linalg.eigh(near_diagonal(LARGE)),
        lambda: linalg.svd(near_diagonal(LARGE)),
    ):
        for one, other in zip(tensors(call()), tensors(call()), strict=True):
            assert torch.equal(one, other)


# --- signatures, and where results go ------------------------------------------------------------


def signature_of_torch(name: str) -> list[tuple[str, str]]:
    """Names and defaults of torch's parameters, from the line its documentation begins with."""
    function = torchs(name)
    if inspect.isfunction(function):
        found = inspect.signature(function).parameters.values()
        return [(p.name, "" if p.default is p.empty else repr(p.default)) for p in found]
    found = re.search(rf"\b{name}\((.*?)\) ->", function.__doc__)
    assert found, function.__doc__
    words = re.split(r",\s*(?![^(]*\))", found.group(1))
    pairs = (re.sub(r"^bool ", "", word).partition("=") for word in words if word != "*")
    return [(key, default) for key, _, default in pairs]


# torch takes these too, before `hermitian`, and does not say so.
NUMPYS = {"pinv": ("rcond", "None"), "matrix_rank": ("tol", "None")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signature_is_torchs(name: str) -> None:
    ours = inspect.signature(getattr(linalg, name)).parameters.values()
    found = [(p.name, "" if p.default is p.empty else repr(p.default)) for p in ours]
    if name in NUMPYS:
        assert found[:3] == [("A", ""), NUMPYS[name], ("hermitian", "False")]
        assert sorted({*found} - {NUMPYS[name]}) == sorted(signature_of_torch(name))
    else:
        assert found == signature_of_torch(name)


def test_results_go_into_tensors_of_the_caller() -> None:
    room, info = torch.empty(0), torch.empty(0, dtype=torch.int32)
    assert linalg.cholesky(P, out=room) is room
    assert torch.equal(room, linalg.cholesky(P))
    found = linalg.cholesky_ex(P, out=(room, info))
    assert found.L is room and found.info is info and type(found) is type(torchs("cholesky_ex")(P))
    columns = torch.empty(6, 6, 2).permute(2, 1, 0)
    assert torch.equal(linalg.inv(A, out=columns), linalg.inv(A))
    assert linalg.det(A, out=torch.empty(2)).shape == (2,)
    with pytest.warns(UserWarning, match=r"had shape \[3\].* output shape \[2\]"):
        linalg.det(A, out=torch.empty(3))
    for bad, words in ((torch.empty(2).double(), "dtype float, but got double"),):
        for module in (linalg, torch.linalg):
            with pytest.raises(RuntimeError, match=words):
                module.det(A, out=bad)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        linalg.det(A.clone().requires_grad_(), out=torch.empty(2))
    with pytest.raises(TypeError, match="'out' expects 2 tensors"):
        linalg.qr(A, out=torch.empty(6, 6))
