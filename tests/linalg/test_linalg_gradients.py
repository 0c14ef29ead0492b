"""Gradients of every function that torch differentiates, beside torch's own; and torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_functions import FUNCTIONS, A, B, P, random, tensors, torchs
from torch import Tensor

from anymetal import linalg

EAGER = {"backend": "aot_eager"}

# One call of each function that gives tensors which a gradient may flow into.
GRADIENT_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "cholesky": ((P,), {}),
    "cholesky_ex": ((P,), {"upper": True}),
    "cholesky_solve": ((B, torch.linalg.cholesky(P)), {}),
    "cholesky_inverse": ((torch.linalg.cholesky(P),), {}),
    "lu": ((A[..., :4],), {}),
    "lu_factor": ((A,), {}),
    "lu_factor_ex": ((A[:, :4],), {}),
    "lu_solve": ((*torch.linalg.lu_factor(A), B), {"adjoint": True}),
    "solve": ((A, B), {}),
    "solve_ex": ((A, B.mT), {"left": False}),
    "inv": ((A,), {}),
    "inv_ex": ((A,), {}),
    "det": ((A,), {}),
    "slogdet": ((A,), {}),
    "solve_triangular": ((A, B), {"upper": True, "unitriangular": True}),
    "householder_product": (torch.geqrf(random(2, 6, 4)), {}),
    "ormqr": ((*torch.geqrf(random(2, 6, 4)), B), {"transpose": True}),
    "qr": ((A[..., :4],), {}),
    "eigh": ((P,), {}),
    "eigvalsh": ((P,), {"UPLO": "U"}),
    "svd": ((A[..., :4],), {"full_matrices": False}),
    "svdvals": ((A,), {}),
    "lstsq": ((A[..., :4], B), {}),
    "pinv": ((A[..., :4],), {}),
    "cond": ((A,), {}),
    "matrix_norm": ((A, "nuc"), {}),
    "matrix_exp": ((A,), {}),
}


def invariants(name: str, result: Any) -> list[Tensor]:
    """Results that do not depend on the signs of vectors."""
    found = tensors(result)
    if name == "eigh":
        return [found[0], found[1].abs()]
    if name == "svd":
        return [found[0].abs(), found[1], found[0][..., :4] @ found[2]]
    return [t for t in found if t.is_floating_point() and t.numel()]


def gradients(call: Callable[..., Any], name: str, dtype: torch.dtype) -> list[Tensor]:
    args, keywords = GRADIENT_CALLS[name]
    leaves = [
        a.to(dtype, copy=True).requires_grad_()
        if isinstance(a, Tensor) and a.is_floating_point()
        else a
        for a in args
    ]
    results = [t for t in invariants(name, call(*leaves, **keywords)) if t.requires_grad]
    total = sum((t * (t + 1).cos()).sum() for t in results)
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    return list(torch.autograd.grad(total, wanted))


def assert_as_near(ours: Tensor, theirs: Tensor, exact: Tensor) -> None:
    """Within 8 times torch's own error in float32."""
    least = torch.finfo(torch.float32).eps * exact.abs().max()
    limit = 8 * torch.maximum((theirs - exact).abs().max(), least)
    assert (ours - exact).abs().max() <= limit


@pytest.mark.parametrize("name", GRADIENT_CALLS)
def test_gradients_are_as_near_as_torchs(name: str) -> None:
    """Within 8 times the error of torch's own in float32, of every function that torch
    differentiates: all but geqrf (which torch cannot) and matrix_rank; svd_lowrank below."""
    ours = gradients(getattr(linalg, name), name, torch.float32)
    theirs, exact = (gradients(torchs(name), name, d) for d in (torch.float32, torch.float64))
    for listed in zip(ours, theirs, exact, strict=True):
        found = listed
        square = found[0].shape[-1] == found[0].shape[-2]
        if name in ("cholesky_solve", "cholesky_inverse") and square:
            # torch gives numbers for the triangle of a factor that nobody reads, too.
            found = tuple(gradient.tril() for gradient in found)
        assert_as_near(*found)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "svd_lowrank"])
def test_compiled_function_is_the_same(name: str) -> None:
    function = getattr(linalg, name)
    args, keywords = GRADIENT_CALLS.get(name, ((A,), {}))
    compiled = torch.compile(lambda *given: function(*given, **keywords), fullgraph=True, **EAGER)
    for one, other in zip(
        tensors(compiled(*args)), tensors(function(*args, **keywords)), strict=True
    ):
        assert torch.equal(one, other)
    torch._dynamo.reset()


def test_svd_lowrank_differentiates_and_compiles() -> None:
    a = random(9, 3) @ random(3, 7)

    def product(matrix: Tensor, module: Any = linalg) -> Tensor:
        torch.manual_seed(3)
        u, s, v = module.svd_lowrank(matrix, q=3)
        return (u * s.sin()) @ v.mT

    found = []
    for module, dtype in ((linalg, torch.float32), (torch, torch.float32), (torch, torch.float64)):
        leaf = a.to(dtype, copy=True).requires_grad_()
        found += torch.autograd.grad(product(leaf, module).sum(), leaf)
    assert_as_near(*found)
    compiled = torch.compile(
        lambda matrix: linalg.svd_lowrank(matrix, q=3), fullgraph=True, **EAGER
    )
    torch.manual_seed(3)
    u, s, v = compiled(a)
    assert torch.equal((u * s.sin()) @ v.mT, product(a))
    torch._dynamo.reset()


def test_gradient_of_det_at_a_singular_matrix_is_its_cofactors() -> None:
    a = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(linalg.det(a), a)
    cofactors = torch.tensor([[4.0, 4.0, -4.0], [-2.0, -2.0, 2.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(gradient, cofactors, rtol=1e-4, atol=1e-4)


REFLECTIONS: list[tuple[str, bool, bool]] = [("householder_product", True, False)]
REFLECTIONS += [("ormqr", left, transpose) for left in (True, False) for transpose in (True, False)]


@pytest.mark.parametrize(("name", "left", "transpose"), REFLECTIONS)
def test_gradients_of_reflections(name: str, left: bool, transpose: bool) -> None:
    """Within 8 times torch's own error."""
    args = torch.geqrf(random(2, 9, 5))
    keywords = {}
    if name == "ormqr":
        args = (*args, random(2, 9, 4) if left else random(2, 4, 9))
        keywords = {"left": left, "transpose": transpose}
    found = []
    for module, dtype in ((linalg, torch.float32), (torch, torch.float32), (torch, torch.float64)):
        call = torchs(name) if module is torch else getattr(linalg, name)
        leaves = [arg.to(dtype, copy=True).requires_grad_() for arg in args]
        found.append(torch.autograd.grad(call(*leaves, **keywords).sin().sum(), leaves))
    for ours, theirs, exact in zip(*found, strict=True):
        assert_as_near(ours, theirs, exact)


@pytest.mark.parametrize("shape", [(16, 24, 24), (16, 14, 15), (16, 15, 14)])
def test_pseudo_inverses_of_ill_conditioned_matrices_are_as_near_as_torchs(
    shape: tuple[int, ...],
) -> None:
    a, upstream = random(*shape), random(shape[0], shape[2], shape[1])

    def both(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        leaf = a.to(dtype).requires_grad_()
        inverse = function(leaf)
        (gradient,) = torch.autograd.grad(inverse, leaf, upstream.to(dtype))
        return inverse.detach(), gradient

    exact = both(torch.linalg.pinv, torch.float64)
    ours, theirs = (both(f, torch.float32) for f in (linalg.pinv, torch.linalg.pinv))
    for one, other, right in zip(ours, theirs, exact, strict=True):
        assert (one - right).norm() <= 1.2 * (other - right).norm()
