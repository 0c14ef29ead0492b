"""LU factors, and what is made of them: solve, inv, det, slogdet."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.algorithms import lu as algorithm
from anymetal.linalg.algorithms.matrices import deliver, flat, room_in
from anymetal.linalg.examples import case, conditioned, cost, random
from anymetal.linalg.outputs import with_out
from anymetal.linalg.ratios import by, of_lu, of_lu_factors
from anymetal.linalg.requirements import (
    Named,
    batch_of,
    broadcast,
    check_device,
    check_dtype,
    check_equation,
    check_matrix,
    check_together,
    in_float,
    named,
    raise_failed,
    wide,
)
from anymetal.linalg.triangular import solve_triangular
from anymetal.ops.declare import Call, Case, Gradients, operator

SOURCE = "algorithms/lu.metal"
_SQUARE = (
    case("empty", (conditioned, (2, 0, 0))),
    case("", (conditioned, (1, 1))),
    case("", (conditioned, (3, 7, 7))),
    case("", (conditioned, (2, 33, 33))),
)
_BENCH = tuple(
    case("", (conditioned, shape)) for shape in ((1000, 8, 8), (1000, 32, 32), (512, 512))
)
Factors = tuple[Tensor, Tensor, Tensor]
_SMALLEST = 1e-30


# --- factors -------------------------------------------------------------------------------------


def _factor_reference(A: Tensor, *, raising: str = "") -> Factors:
    factors, pivots, info = torch.linalg.lu_factor_ex(A)
    return factors, pivots, info


@operator(
    source=SOURCE,
    reference=_factor_reference,
    baseline=in_float(_factor_reference),
    cases=(
        *_SQUARE,
        case("wide", (conditioned, (2, 5, 9))),
        case("tall", (conditioned, (33, 6))),
    ),
    bench=_BENCH,
    cost=cost(lambda m, n: 2 / 3 * m * n * min(m, n)),
    results=("LU", "pivots", "info"),
    ratios=by(of_lu_factors),
    name="lu_factor_ex",
)
def _lu_factor_ex(A: Tensor, *, raising: str = "") -> Factors:
    """`raising` names the function in whose name a failure is raised; empty, none is."""
    check_matrix((raising or "lu_factor_ex").split(".")[-1], "A", A)
    batch, count = A.shape[:-2], min(A.shape[-2:])
    return (
        A.new_empty(A.shape),
        A.new_empty(*batch, count, dtype=torch.int32),
        A.new_empty(batch, dtype=torch.int32),
    )


@_lu_factor_ex.run
def _(output: Factors, A: Tensor, *, raising: str = "") -> None:
    for room, found in zip(output, algorithm.factor(flat(A)), strict=True):
        room.copy_(found.reshape(room.shape))
    if raising:
        raise_failed(output[2], raising, _no_division, RuntimeError)


def _no_division(at: int) -> str:
    return (
        f"U[{at},{at}] is zero and using it on lu_solve would result in a division by zero. If you"
        " still want to perform the factorization, consider calling linalg.lu(A, pivot) or"
        " linalg.lu_factor_ex(A, pivot)"
    )


@_lu_factor_ex.backward(keep=["A", "LU", "pivots"])
def _(call: Call, grad: Tensor, grad_pivots: Tensor, grad_info: Tensor) -> Gradients:
    factors, grad = wide(call.LU, grad)
    if call.LU.dtype != torch.float32:
        factors = _lu_factor_ex(wide(call.A))[0]
    inner = _unpivoted_gradient(factors, grad)
    return {"A": _rows_swapped(inner, call.pivots).to(call.A.dtype)}


def _unpivoted_gradient(factors: Tensor, grad: Tensor) -> Tensor:
    """The gradient of P' A = L U, from that of L and U in one matrix."""
    m, n = factors.shape[-2:]
    k = min(m, n)
    lower, upper = factors[..., :k], factors[..., :k, :]
    square, grad_square = factors[..., :k, :k], grad[..., :k, :k]
    unit = square.tril(-1) + torch.eye(k, device=factors.device)
    from_lower = unit.mT @ grad_square.tril(-1)
    from_upper = grad_square.triu() @ square.triu().mT
    if m > n:
        from_upper = from_upper - lower[..., k:, :].mT @ grad[..., k:, :]
    if n > m:
        from_lower = from_lower - grad[..., :, k:] @ upper[..., :, k:].mT
    inner = from_lower.tril(-1) + from_upper.triu()
    inner = solve_triangular(square.mT, inner, upper=True, unitriangular=True)
    result = solve_triangular(square.mT, inner, upper=False, left=False)
    if m > n:
        below = solve_triangular(square.mT, grad[..., k:, :], upper=False, left=False)
        return torch.cat([result, below], -2)
    if n > m:
        beside = solve_triangular(square.mT, grad[..., :, k:], upper=True, unitriangular=True)
        return torch.cat([result, beside], -1)
    return result


def _rows_swapped(matrix: Tensor, pivots: Tensor) -> Tensor:
    """P times a matrix, by the permutation that the pivots are."""
    permutation, _, _ = torch.lu_unpack(matrix, pivots, unpack_data=False)
    return permutation.to(matrix.dtype) @ matrix


def _check_pivot(A: Tensor, pivot: bool) -> None:
    """Without pivoting a factor may be of any size; torch has that on CUDA alone."""
    if pivot:
        return
    if A.is_mps:
        raise RuntimeError("linalg.lu_factor(): MPS doesn't allow pivot == False.")
    raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")


@with_out
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Named:
    """L and U in one matrix, pivots from 1 on, and info: the first zero pivot, or 0."""
    _check_pivot(A, pivot)
    raising = "torch.linalg.lu_factor_ex" if check_errors else ""
    return named("linalg_lu_factor_ex", _lu_factor_ex(A, raising=raising))


@with_out
def lu_factor(A: Tensor, *, pivot: bool = True) -> Named:
    """L and U in one matrix and pivots, as torch.linalg.lu_factor; a zero pivot is an error."""
    _check_pivot(A, pivot)
    factors = _lu_factor_ex(A, raising="torch.linalg.lu_factor")
    return named("linalg_lu_factor", factors[:2])


def _lu_reference(A: Tensor) -> Factors:
    permutation, lower, upper = torch.linalg.lu(A)
    return permutation, lower, upper


@operator(
    source=SOURCE,
    reference=_lu_reference,
    baseline=in_float(_lu_reference),
    cases=(_SQUARE[0], _SQUARE[2], case("wide", (conditioned, (2, 5, 9)))),
    bench=_BENCH[:1],
    cost=cost(lambda m, n: 2 / 3 * m * n * min(m, n)),
    results=("P", "L", "U"),
    ratios=by(of_lu),
    detached=["P"],
    made_of_others=True,
    name="lu",
)
def _lu(A: Tensor) -> Factors:
    check_matrix("lu", "A", A)
    factors, pivots, _ = _lu_factor_ex(A)
    permutation, lower, upper = torch.lu_unpack(factors, pivots)
    return permutation, lower, upper


@with_out
def lu(A: Tensor, *, pivot: bool = True) -> Named:
    """P, L and U with A = P L U, as torch.linalg.lu."""
    check_matrix("lu", "A", A)
    _check_pivot(A, pivot)
    return named("linalg_lu", _lu(A))


# --- systems -------------------------------------------------------------------------------------


def _lu_solve_case(shape: tuple[int, ...], b: tuple[int, ...], **keywords: bool) -> Case:
    plain = case("", (conditioned, shape), (random, b), **keywords)

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[object], dict[str, object]]:
        (a, rhs), keywords = plain.make(torch.float32, torch.device("cpu"), generator)
        factors, pivots = torch.linalg.lu_factor(a)
        return [factors.to(device, dtype), pivots.to(device), rhs.to(device, dtype)], keywords

    return Case(plain.name, make)


def _lu_solve_reference(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    result: Tensor = torch.linalg.lu_solve(LU, pivots, B, left=left, adjoint=adjoint)
    return result


@operator(
    source=SOURCE,
    reference=_lu_solve_reference,
    baseline=in_float(_lu_solve_reference),
    cases=(
        _lu_solve_case((0, 0), (0, 2)),
        _lu_solve_case((2, 6, 6), (2, 6, 1)),
        _lu_solve_case((5, 5), (2, 5, 3), adjoint=True),
        _lu_solve_case((3, 33, 33), (3, 4, 33), left=False),
        _lu_solve_case((7, 7), (4, 7), left=False, adjoint=True),
    ),
    cost=cost(lambda n, _: 2 * n * n),
)
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B (X A = B where not `left`, A' for A where `adjoint`), from A's factors."""
    check_dtype("lu_solve", "LU", LU)
    check_together("lu_solve", LU, "B", B, given="LU")
    check_matrix("lu_solve", "A", LU, square=True, begins="torch.linalg.lu_solve")
    _check_pivots(LU, pivots)
    check_matrix("lu_solve", "B", B)
    check_equation("lu_solve", LU, B, left=left)
    batch = batch_of(LU, B)
    return B.new_empty(*batch, *B.shape[-2:])


def _check_pivots(LU: Tensor, pivots: Tensor) -> None:
    if pivots.dtype != torch.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    if pivots.dim() == 0 or pivots.shape[-1] != LU.shape[-1]:
        raise RuntimeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the"
            " matrix"
        )
    if pivots.shape != LU.shape[:-1]:
        raise RuntimeError(
            "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got"
            f" pivots with shape {list(pivots.shape)} instead"
        )
    check_device("linalg.lu_solve", LU, "pivots", pivots, "LU")


@lu_solve.run
def _(
    output: Tensor,
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> None:
    _solve_into(output, LU, pivots, B, left=left, adjoint=adjoint)


def _solve_into(
    output: Tensor, LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool, adjoint: bool
) -> None:
    factors, b = broadcast(LU, B)
    if output.numel() == 0:
        return
    swaps = pivots.expand(factors.shape[:-1]).reshape(-1, pivots.shape[-1]).contiguous()
    if left:
        x = algorithm.solve(flat(factors), swaps, flat(b), adjoint=adjoint)
    else:
        x = algorithm.solve(flat(factors), swaps, flat(b.mT), adjoint=not adjoint).mT
    output.copy_(x.reshape(output.shape))


@lu_solve.backward(keep=["LU", "pivots", "B", "output"])
def _(call: Call, grad: Tensor) -> Gradients:
    factors, grad, x = wide(call.LU, grad, call.output)
    adjoint = call.adjoint
    if call.output.dtype != torch.float32:
        x = lu_solve(factors, call.pivots, wide(call.B), left=call.left, adjoint=adjoint)
    if not call.left:
        x, grad, adjoint = x.mT, grad.mT, not adjoint
    grad_b = lu_solve(factors, call.pivots, grad, adjoint=not adjoint)
    grad_factors = _factors_gradient(factors, call.pivots, x, grad_b, grad, adjoint)
    return {
        "LU": grad_factors.sum_to_size(call.LU.shape).to(call.LU.dtype),
        "B": (grad_b if call.left else grad_b.mT).sum_to_size(call.B.shape).to(call.B.dtype),
    }


def _factors_gradient(
    factors: Tensor, pivots: Tensor, x: Tensor, grad_b: Tensor, grad: Tensor, adjoint: bool
) -> Tensor:
    """The gradient of L and U in one matrix, for the solution X of A X = B or A' X = B."""
    upper = factors.triu()
    if not adjoint:
        half = upper @ x  # L^-1 P' B
        grad_half = solve_triangular(upper.mT, grad, upper=False)
        grad_lower = solve_triangular(factors.mT, grad_half, upper=True, unitriangular=True)
        return -(grad_lower @ half.mT).tril(-1) - (grad_half @ x.mT).triu()
    unit = factors.tril(-1) + torch.eye(factors.shape[-1], device=factors.device)
    permutation, _, _ = torch.lu_unpack(factors, pivots, unpack_data=False)
    y = permutation.mT @ x
    grad_w = solve_triangular(factors, permutation.mT @ grad, upper=False, unitriangular=True)
    w = unit.mT @ y  # U'^-1 B
    return -(y @ grad_w.mT).tril(-1) - (w @ grad_b.mT).triu()


def _solve_reference(
    A: Tensor, B: Tensor, *, left: bool = True, raising: str = ""
) -> tuple[Tensor, Tensor]:
    result, info = torch.linalg.solve_ex(A, B, left=left)
    return result, info


@operator(
    source=SOURCE,
    reference=_solve_reference,
    baseline=in_float(_solve_reference),
    cases=(
        case("empty", (conditioned, (0, 0)), (random, (0, 2))),
        case("", (conditioned, (2, 6, 6)), (random, (2, 6, 1))),
        case("", (conditioned, (33, 33)), (random, (2, 3, 33)), left=False),
    ),
    bench=tuple(
        case("", (conditioned, (*batch, n, n)), (random, (*batch, n, 1)))
        for *batch, n in ((1000, 8), (1000, 32), (512,))
    ),
    cost=cost(lambda n, _: 2 / 3 * n**3 + 2 * n * n),
    results=("result", "info"),
    name="solve_ex",
)
def _solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, raising: str = ""
) -> tuple[Tensor, Tensor]:
    name = (raising or "solve_ex").split(".")[-1]
    check_matrix(name, "A", A, square=True)
    check_together(name, A, "B", B)
    check_matrix(name, "B", B)
    check_equation(name, A, B, left=left)
    batch = batch_of(A, B)
    info = torch.empty(A.shape[:-2], dtype=torch.int32, device=A.device)
    return B.new_empty(*batch, *B.shape[-2:]), info


@_solve_ex.run
def _(
    output: tuple[Tensor, Tensor], A: Tensor, B: Tensor, *, left: bool = True, raising: str = ""
) -> None:
    result, info = output
    n, columns = B.shape[-2:] if left else (B.shape[-1], B.shape[-2])
    if result.numel() and algorithm.is_small(n, columns) and A.shape[:-2] == result.shape[:-2]:
        room = room_in(result)
        a, b, x = flat(A), flat(B if B.shape == result.shape else B.expand(result.shape)), room
        if not left:
            a, b, x = a.mT, b.mT, x.mT
        algorithm.solve_small(a, b, x, info.view(-1))
        deliver(result, room)
    else:
        factors, pivots, found = algorithm.factor(flat(A))
        info.copy_(found.reshape(info.shape))
        if result.numel():
            shaped = factors.reshape(A.shape), pivots.reshape(A.shape[:-1])
            _solve_into(result, *shaped, B, left=left, adjoint=False)
    if raising:
        raise_failed(info, raising, _singular)


def _singular(at: int) -> str:
    return "The solver failed because the input matrix is singular."


@_solve_ex.backward(keep=["A", "B", "result"])
def _(call: Call, grad: Tensor, grad_info: Tensor) -> Gradients:
    a, x, grad = wide(call.A, call.result, grad)
    if call.A.dtype != torch.float32:
        x = _solve_ex(a, wide(call.B), left=call.left)[0]
    grad_b = _solve_ex(a.mT, grad, left=call.left)[0]
    grad_a = -(grad_b @ x.mT) if call.left else -(x.mT @ grad_b)
    return {
        "A": grad_a.sum_to_size(call.A.shape).to(call.A.dtype),
        "B": grad_b.sum_to_size(call.B.shape).to(call.B.dtype),
    }


def _is_vector(a: Tensor, b: Tensor) -> bool:
    """Whether B is a batch of vectors, by torch's rule."""
    return b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])


def _solved(A: Tensor, B: Tensor, left: bool, raising: str) -> tuple[Tensor, Tensor]:
    if not _is_vector(A, B):
        return _solve_ex(A, B, left=left, raising=raising)
    if not left:
        raise ValueError("linalg.solve: Vector broadcasting of the left hand side is not supported")
    result, info = _solve_ex(A, B.unsqueeze(-1), raising=raising)
    return result.squeeze(-1), info


@with_out
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B, or X A = B where not `left`, as torch.linalg.solve.

    Raises LinAlgError where A is singular.
    """
    return _solved(A, B, left, "torch.linalg.solve")[0]


@with_out
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Named:
    """The solution and info: the first zero pivot of A, or 0."""
    raising = "torch.linalg.solve_ex" if check_errors else ""
    return named("linalg_solve_ex", _solved(A, B, left, raising))


# --- inverses and determinants -------------------------------------------------------------------


def _inv_reference(A: Tensor, *, raising: str = "") -> tuple[Tensor, Tensor]:
    inverse, info = torch.linalg.inv_ex(A)
    return inverse, info


@operator(
    source=SOURCE,
    reference=_inv_reference,
    baseline=in_float(_inv_reference),
    cases=_SQUARE,
    bench=_BENCH,
    cost=cost(lambda n, _: 2 * n**3),
    results=("inverse", "info"),
    name="inv_ex",
)
def _inv_ex(A: Tensor, *, raising: str = "") -> tuple[Tensor, Tensor]:
    check_matrix((raising or "inv_ex").split(".")[-1], "A", A, square=True)
    return A.new_empty(A.shape), A.new_empty(A.shape[:-2], dtype=torch.int32)


@_inv_ex.run
def _(output: tuple[Tensor, Tensor], A: Tensor, *, raising: str = "") -> None:
    inverse, info = output
    if inverse.numel() and algorithm.is_small(*A.shape[-2:]):
        room = room_in(inverse)
        algorithm.solve_small(flat(A), None, room, info.view(-1))
        deliver(inverse, room)
    else:
        factors, pivots, found = algorithm.factor(flat(A))
        info.copy_(found.reshape(info.shape))
        if inverse.numel():
            identity = torch.eye(A.shape[-1], device=A.device).expand(factors.shape)
            inverse.copy_(algorithm.solve(factors, pivots, identity).reshape(A.shape))
    if raising:
        raise_failed(info, raising, _not_invertible)


def _not_invertible(at: int) -> str:
    return (
        f"The diagonal element {at} is zero, the inversion could not be completed because the input"
        " matrix is singular."
    )


@_inv_ex.backward(keep=["A", "inverse"])
def _(call: Call, grad: Tensor, grad_info: Tensor) -> Gradients:
    inverse, grad = wide(call.inverse, grad)
    if call.inverse.dtype != torch.float32:
        inverse = _inv_ex(wide(call.A))[0]
    return {"A": -(inverse.mT @ grad @ inverse.mT).to(call.A.dtype)}


@with_out
def inv(A: Tensor) -> Tensor:
    """The inverse, as torch.linalg.inv; LinAlgError where A is singular."""
    return _inv_ex(A, raising="linalg.inv")[0]


@with_out
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Named:
    """The inverse and info: the first zero pivot, or 0."""
    raising = "linalg.inv_ex" if check_errors else ""
    return named("linalg_inv_ex", _inv_ex(A, raising=raising))


def _parity(pivots: Tensor) -> Tensor:
    """-1 for an odd number of row swaps, otherwise 1."""
    order = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    return 1.0 - 2.0 * ((pivots != order).sum(-1) % 2)


@operator(
    source=SOURCE,
    reference=torch.linalg.det,
    baseline=in_float(torch.linalg.det),
    cases=_SQUARE[:-1],
    bench=_BENCH,
    cost=cost(lambda n, _: 2 / 3 * n**3),
)
def det(A: Tensor) -> Tensor:
    """The determinant, as torch.linalg.det."""
    check_matrix("det", "A", A, square=True)
    return A.new_empty(A.shape[:-2])


@det.run
def _(output: Tensor, A: Tensor) -> None:
    factors, pivots, _ = algorithm.factor(flat(A))
    product = factors.diagonal(dim1=-2, dim2=-1).prod(-1) * _parity(pivots)
    output.copy_(product.reshape(output.shape))


@det.backward(keep=["A"])
def _(call: Call, grad: Tensor) -> Gradients:
    """det(A) times the inverse; a pivot of zero is made a small one, which the two share."""
    factors, pivots, _ = _lu_factor_ex(wide(call.A))
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    size = torch.linalg.vector_norm(factors.detach(), dim=(-2, -1))[..., None].clamp(min=_SMALLEST)
    pivot = torch.where(diagonal == 0, torch.finfo(torch.float32).eps * size, diagonal)
    near = factors + torch.diag_embed(pivot - diagonal)
    value = wide(grad) * pivot.prod(-1) * _parity(pivots)
    right = torch.diag_embed(value[..., None].expand(diagonal.shape))
    return {"A": lu_solve(near, pivots, right, adjoint=True).to(call.A.dtype)}


def _slogdet_reference(A: Tensor) -> tuple[Tensor, Tensor]:
    sign, logarithm = torch.linalg.slogdet(A)
    return sign, logarithm


@operator(
    source=SOURCE,
    reference=_slogdet_reference,
    baseline=in_float(_slogdet_reference),
    cases=_SQUARE[:-1],
    bench=_BENCH,
    cost=cost(lambda n, _: 2 / 3 * n**3),
    results=("sign", "logabsdet"),
    name="slogdet",
)
def _slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    check_matrix("slogdet", "A", A, square=True)
    return A.new_empty(A.shape[:-2]), A.new_empty(A.shape[:-2])


@_slogdet.run
def _(output: tuple[Tensor, Tensor], A: Tensor) -> None:
    factors, pivots, _ = algorithm.factor(flat(A))
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    output[0].copy_((diagonal.sign().prod(-1) * _parity(pivots)).reshape(output[0].shape))
    output[1].copy_(diagonal.abs().log().sum(-1).reshape(output[1].shape))


@_slogdet.backward(keep=["A"])
def _(call: Call, grad_sign: Tensor, grad: Tensor) -> Gradients:
    a, grad = wide(call.A, grad)
    return {"A": (grad[..., None, None] * _inv_ex(a)[0].mT).to(call.A.dtype)}


@with_out
def slogdet(A: Tensor) -> Named:
    """The sign and the logarithm of the absolute value of the determinant."""
    return named("linalg_slogdet", _slogdet(A))
