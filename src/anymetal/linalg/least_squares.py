"""Pseudo-inverses and what rank and condition are: lstsq, pinv, matrix_rank, cond."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.eigh import eigh, eigvalsh
from anymetal.linalg.examples import case, conditioned, cost, random, spread, symmetric, tolerance
from anymetal.linalg.lu import inv_ex
from anymetal.linalg.norms import exact_order, norm_of, order_name
from anymetal.linalg.outputs import with_out
from anymetal.linalg.qr import qr
from anymetal.linalg.requirements import (
    Named,
    batch_of,
    check_broadcast,
    check_matrix,
    check_together,
    dtype_name,
    in_float,
    named,
    wide,
)
from anymetal.linalg.svd import svd, svdvals
from anymetal.linalg.triangular import solve_triangular
from anymetal.ops.declare import Call, Gradients, operator

SOURCE = "algorithms/jacobi.metal"
EPSILON = torch.finfo(torch.float32).eps
Tolerance = Tensor | float | None


def _reciprocal(values: Tensor, limit: Tensor) -> Tensor:
    """1 / values, 0 where they are not above the limit."""
    above = values.abs() > limit
    return torch.where(above, 1.0 / torch.where(above, values, 1.0), 0.0)


def _spectrum(matrix: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, values and V' with matrix = U diag(values) V'; values may be negative if hermitian."""
    if hermitian:
        values, vectors = eigh(matrix)
        return vectors, values, vectors.mT
    u, s, vh = svd(matrix, full_matrices=False)
    return u, s, vh


# --- the pseudo-inverse --------------------------------------------------------------------------


def _pinv_reference(A: Tensor, atol: float, rtol: float, hermitian: bool = False) -> Tensor:
    inverse: Tensor = torch.linalg.pinv(A, atol=atol, rtol=rtol, hermitian=hermitian)
    return inverse


@operator(
    source=SOURCE,
    reference=_pinv_reference,
    baseline=in_float(_pinv_reference),
    cases=(
        case("empty", (spread, (0, 3)), atol=0.0, rtol=1e-6),
        case("", (spread, (2, 9, 5)), atol=0.0, rtol=1e-6),
        case("", (spread, (5, 7)), atol=0.5, rtol=0.0),
    ),
    cost=cost(lambda m, n: 22 * m * n * min(m, n)),
    name="pinv",
)
def _pinv(A: Tensor, atol: float, rtol: float, hermitian: bool = False) -> Tensor:
    check_matrix("pinv", "A", A)
    if hermitian:
        check_matrix("eigh", "A", A, square=True)
    return A.new_empty(*A.shape[:-2], A.shape[-1], A.shape[-2])


@_pinv.run
def _(output: Tensor, A: Tensor, atol: float, rtol: float, hermitian: bool = False) -> None:
    if output.numel():
        output.copy_(_by_spectrum(A.float(), torch.tensor(atol), torch.tensor(rtol), hermitian))


def _by_spectrum(matrix: Tensor, atol: Tensor, rtol: Tensor, hermitian: bool) -> Tensor:
    u, values, vh = _spectrum(matrix, hermitian)
    limit = _limit(values, atol.to(matrix.device), rtol.to(matrix.device))
    inverse: Tensor = (vh.mT * _reciprocal(values, limit)[..., None, :]) @ u.mT
    return inverse if hermitian else _improved(matrix, inverse)


def _improved(a: Tensor, inverse: Tensor) -> Tensor:
    """A step of Newton's iteration: a third of the error of what singular vectors gave. What was
    taken for zero among the singular values stays zero."""
    if a.shape[-2] <= a.shape[-1]:
        return inverse + inverse @ _remaining(a @ inverse)
    return inverse + _remaining(inverse @ a) @ inverse


def _remaining(product: Tensor) -> Tensor:
    """What a product lacks of the identity."""
    identity = torch.eye(product.shape[-1], dtype=product.dtype, device=product.device)
    return identity - product


def _limit(values: Tensor, atol: Tensor, rtol: Tensor) -> Tensor:
    largest = values.abs().amax(-1) if values.numel() else values.new_zeros(values.shape[:-1])
    return torch.maximum(atol, rtol * largest)[..., None]


@_pinv.backward(keep=["A", "output"])
def _(call: Call, grad: Tensor) -> Gradients:
    a, inverse, grad = wide(call.A, call.output, grad)
    if call.A.dtype != torch.float32:
        inverse = _pinv(a, call.atol, call.rtol, call.hermitian)
    # Where one triangle counts, the other is no part of what was inverted.
    projections = 1 if call.hermitian else _PROJECTIONS
    return {"A": pinv_gradient(a, inverse, grad, projections).to(call.A.dtype)}


# What a projection leaves of a matrix of full rank should be nothing, and is the rounding errors of
# the inverse, which are then multiplied by it twice: taken twice, it leaves their squares.
_PROJECTIONS = 2


def pinv_gradient(
    a: Tensor, inverse: Tensor, grad: Tensor, projections: int = _PROJECTIONS
) -> Tensor:
    """Golub and Pereyra's formula, in the order of products that keeps matrices small."""
    outside = grad.mT
    if a.shape[-2] <= a.shape[-1]:
        k = outside @ inverse
        second = k @ inverse.mT
        for _ in range(projections):
            second = second - a @ (inverse @ second)
            outside = outside - (outside @ inverse) @ a
        return second - (inverse @ k).mT + inverse.mT @ (inverse @ outside)
    k = inverse @ outside
    second = inverse.mT @ k
    for _ in range(projections):
        second = second - (second @ inverse) @ a
        outside = outside - a @ (inverse @ outside)
    return second - (k @ inverse).mT + (outside @ inverse) @ inverse.mT


def _tolerances(
    name: str, a: Tensor, atol: Tolerance, rtol: Tolerance
) -> tuple[Tolerance, Tolerance]:
    """torch's defaults: eps * max(m, n) of the largest value, 0 beside an absolute one."""
    for word, given in (("atol", atol), ("rtol", rtol)):
        if isinstance(given, Tensor) and given.is_complex():
            raise RuntimeError(
                f"torch.linalg.{name}: {word} tensor of complex type is not supported. Got"
                f" {dtype_name(given)}"
            )
    if rtol is None:
        relative = EPSILON * max(a.shape[-2:])
        if isinstance(atol, Tensor):
            rtol = torch.where(atol > 0, 0.0, relative)
        else:
            rtol = 0.0 if atol else relative
    return (0.0 if atol is None else atol), rtol


def _as_tensor(value: Tolerance, like: Tensor) -> Tensor:
    return value.float() if isinstance(value, Tensor) else torch.tensor(value, device=like.device)


def _no_others(name: str, old: str, given: Tolerance, *others: Tolerance) -> bool:
    """Whether the tolerance of NumPy's signature is given, which excludes the newer ones."""
    if given is not None and any(other is not None for other in others):
        raise TypeError(f"linalg_{name}(): argument '{old}' excludes 'atol' and 'rtol', got both")
    return given is not None


@with_out
def pinv(
    A: Tensor,
    rcond: Tolerance = None,
    hermitian: bool = False,
    *,
    atol: Tolerance = None,
    rtol: Tolerance = None,
) -> Tensor:
    """The pseudo-inverse, as torch.linalg.pinv: singular values up to the tolerance are zero.

    `rcond` is NumPy's name for `rtol`.
    """
    check_matrix("pinv", "A", A)
    if _no_others("pinv", "rcond", rcond, atol, rtol):
        rtol = rcond
    atol, rtol = _tolerances("pinv", A, atol, rtol)
    if isinstance(atol, Tensor) or isinstance(rtol, Tensor):
        limits = _as_tensor(atol, A), _as_tensor(rtol, A)
        return _by_spectrum(A.float(), *limits, hermitian).to(A.dtype)
    return _pinv(A, float(atol or 0.0), float(rtol or 0.0), hermitian)


def _rank_reference(A: Tensor, atol: Tensor, rtol: Tensor, hermitian: bool = False) -> Tensor:
    rank: Tensor = torch.linalg.matrix_rank(A, atol=atol, rtol=rtol, hermitian=hermitian)
    return rank


@operator(
    source=SOURCE,
    reference=_rank_reference,
    baseline=in_float(_rank_reference),
    cases=(
        case("empty", (spread, (2, 0, 3)), (tolerance, (2,)), (tolerance, (2,))),
        case("", (spread, (2, 9, 4)), (tolerance, (2,)), (tolerance, (2,))),
        case("", (symmetric, (5, 7, 7)), (tolerance, (5,)), (tolerance, (5,)), hermitian=True),
    ),
    bench=[case("", (spread, (1000, 8, 8)), (tolerance, (1,)), (tolerance, (1,)))],
    cost=cost(lambda m, n: 22 * m * n * min(m, n)),
    no_gradient="a rank is a whole number",
    made_of_others=True,
    name="matrix_rank",
)
def _matrix_rank(A: Tensor, atol: Tensor, rtol: Tensor, hermitian: bool = False) -> Tensor:
    check_matrix("matrix_rank", "A", A)
    if A.numel() == 0:
        return torch.zeros(A.shape[:-2], dtype=torch.int64, device=A.device)
    matrix = wide(A)
    values = eigvalsh(matrix) if hermitian else svdvals(matrix)
    return (values.abs() > _limit(values, *wide(atol, rtol))).sum(-1)


@with_out
def matrix_rank(
    A: Tensor,
    tol: Tolerance = None,
    hermitian: bool = False,
    *,
    atol: Tolerance = None,
    rtol: Tolerance = None,
) -> Tensor:
    """How many singular values are above the tolerance, as torch.linalg.matrix_rank.

    `tol` is NumPy's way to say `atol` with an `rtol` of 0.
    """
    check_matrix("matrix_rank", "A", A)
    if _no_others("matrix_rank", "tol", tol, atol, rtol):
        atol, rtol = tol, 0.0
    if hermitian:
        check_matrix("eigh", "A", A, square=True)
    atol, rtol = _tolerances("matrix_rank", A, atol, rtol)
    limits = _as_tensor(atol, A).detach(), _as_tensor(rtol, A).detach()
    return _matrix_rank(A.detach(), *limits, hermitian)


def _cond_reference(A: Tensor, p: str) -> Tensor:
    """Norms of A and its inverse: torch's own cannot be differentiated where it inverts."""
    order = exact_order(p)
    if order in (2, -2) or A.numel() == 0:
        number: Tensor = torch.linalg.cond(A, order)
        return number
    sizes: list[Tensor] = [torch.linalg.matrix_norm(m, order) for m in (A, torch.linalg.inv(A))]
    return sizes[0] * sizes[1]


@operator(
    source=SOURCE,
    reference=_cond_reference,
    baseline=in_float(_cond_reference),
    cases=(
        case("empty", (conditioned, (2, 0, 0)), p="2"),
        case("", (spread, (2, 9, 4)), p="2"),
        case("", (conditioned, (3, 7, 7)), p="fro"),
    ),
    bench=[case("", (spread, (1000, 8, 8)), p="2")],
    cost=cost(lambda m, n: 22 * m * n * min(m, n)),
    made_of_others=True,
    name="cond",
)
def _cond(A: Tensor, p: str) -> Tensor:
    """`p` as `order_name` names it."""
    check_matrix("cond", "A", A)
    if A.numel() == 0:
        return A.new_zeros(A.shape[:-2])
    matrix = wide(A)
    if p in ("2", "-2"):
        values = svdvals(matrix)
        ends = values[..., 0], values[..., -1]
        ratio: Tensor = ends[0] / ends[1] if p == "2" else ends[1] / ends[0]
        return ratio.to(A.dtype)
    inverse, info = inv_ex(matrix)
    both = norm_of(matrix, p) * norm_of(inverse, p)
    return torch.where(info == 0, both, torch.inf).to(A.dtype)


@with_out
def cond(A: Tensor, p: float | str | None = None) -> Tensor:
    """The condition number in the norm `p` (2 without one), as torch.linalg.cond."""
    check_matrix("cond", "A", A)
    name = order_name(2 if p is None else p)
    if name is None:
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if name not in ("2", "-2") and A.numel():
        check_matrix("cond", "A", A, square=True, begins=f"linalg.cond(ord={p})")
    return _cond(A, name)


# --- least squares -------------------------------------------------------------------------------


def _lstsq_reference(
    A: Tensor, B: Tensor, rcond: float, full_rank: bool = False
) -> tuple[Tensor, Tensor]:
    inverse = torch.linalg.pinv(A, rtol=0.0 if full_rank else rcond)
    return inverse @ B, torch.linalg.svdvals(A).detach()


def _lstsq_baseline(
    A: Tensor, B: Tensor, rcond: float, full_rank: bool = False
) -> tuple[Tensor, Tensor]:
    found = torch.linalg.lstsq(A, B, rcond=rcond, driver="gelsd")
    return found.solution, torch.linalg.svdvals(A).detach()


@operator(
    source=SOURCE,
    reference=_lstsq_reference,
    baseline=in_float(_lstsq_baseline),
    cases=(
        case("empty", (spread, (3, 0)), (random, (3, 2)), rcond=1e-6),
        case("", (spread, (2, 7, 3)), (random, (2, 7, 4)), rcond=1e-6),
        case("", (spread, (2, 3, 6)), (random, (2, 3, 2)), rcond=1e-6),
    ),
    cost=cost(lambda m, n: 22 * m * n * min(m, n)),
    results=("solution", "singular_values"),
    name="lstsq",
)
def _lstsq(A: Tensor, B: Tensor, rcond: float, full_rank: bool = False) -> tuple[Tensor, Tensor]:
    """The solution of least norm and the singular values; by QR and without them if `full_rank`."""
    check_matrix("lstsq", "A", A)
    check_together("lstsq", A, "B", B)
    check_matrix("lstsq", "B", B)
    *_, m, n = A.shape
    batch = batch_of(A, B)
    values = A.new_empty(*A.shape[:-2], 0 if full_rank else min(m, n))
    return A.new_empty(*batch, n, B.shape[-1]), values


@_lstsq.run
def _(
    output: tuple[Tensor, Tensor], A: Tensor, B: Tensor, rcond: float, full_rank: bool = False
) -> None:
    solution, values = output
    a, b = A.float(), B.float()
    if full_rank:
        solution.copy_(_by_qr(a, b))
        return
    if A.numel() == 0:
        solution.zero_()
        return
    u, s, vh = svd(a, full_matrices=False)
    values.copy_(s)
    inverse = _reciprocal(s, rcond * s[..., :1])
    solution.copy_(vh.mT @ (inverse[..., None] * (u.mT @ b)))


def _by_qr(a: Tensor, b: Tensor) -> Tensor:
    if a.shape[-2] >= a.shape[-1]:
        q, r = qr(a)
        return solve_triangular(r, q.mT @ b, upper=True)
    q, r = qr(a.mT)
    solved: Tensor = q @ solve_triangular(r.mT, b, upper=False)
    return solved


@_lstsq.backward(keep=["A", "B"])
def _(call: Call, grad: Tensor | None, grad_values: Tensor | None) -> Gradients:
    if grad is None:
        return {}
    a, b, grad = wide(call.A, call.B, grad)
    inverse = _pinv(a, 0.0, 0.0 if call.full_rank else call.rcond)
    grad_a = pinv_gradient(a, inverse, grad @ b.mT)
    return {
        "A": grad_a.sum_to_size(call.A.shape).to(call.A.dtype),
        "B": (inverse.mT @ grad).sum_to_size(call.B.shape).to(call.B.dtype),
    }


def _check_system(A: Tensor, B: Tensor) -> None:
    check_matrix("lstsq", "A", A)
    if B.dim() < 1:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    if not 0 <= A.dim() - B.dim() <= 1:
        raise RuntimeError(
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and"
            " (input.dim() - other.dim()) <= 1"
        )
    if A.dtype != B.dtype:
        raise RuntimeError(
            "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's"
            f" dtype {dtype_name(A)} and other's dtype {dtype_name(B)}"
        )


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Named:
    """Least squares as torch.linalg.lstsq: solution, residuals, rank, singular values.

    "gels" takes A to be of full rank and uses QR; the other drivers use singular values.
    """
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    _check_system(A, B)
    is_vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if is_vector else B
    if right.dim() < 2 or A.shape[-2] != right.shape[-2]:
        raise RuntimeError("torch.linalg.lstsq: input.size(-2) should match other.size(-2)")
    check_broadcast(A.shape[:-2], right.shape[: A.dim() - 2])
    limit = EPSILON * max(A.shape[-2:]) if rcond is None else rcond
    solution, values = _lstsq(A, right, limit, driver == "gels")
    rank = _rank(A, values, limit, driver)
    residuals = _residuals(A, right, solution, rank, driver)
    given = values if driver in ("gelsd", "gelss") else A.new_empty(0)
    found = solution.squeeze(-1) if is_vector else solution
    return named("linalg_lstsq", (found, residuals, rank, given))


def _rank(a: Tensor, values: Tensor, limit: float, driver: str) -> Tensor:
    if driver == "gels":
        return torch.empty(0, dtype=torch.int64, device=a.device)
    if values.shape[-1] == 0:
        return torch.zeros(a.shape[:-2], dtype=torch.int64, device=a.device)
    return (values > limit * values[..., :1]).sum(-1)


def _residuals(a: Tensor, b: Tensor, solution: Tensor, rank: Tensor, driver: str) -> Tensor:
    """Squared residuals where torch reports them: more rows than columns, all of full rank."""
    m, n = a.shape[-2:]
    if m <= n or driver == "gelsy" or (driver != "gels" and bool((rank < n).any())):
        return a.new_empty(0)
    if n == 0 and driver == "gels":  # torch's own residuals of nothing, which gelsd does not share
        return b.new_zeros(b.shape[:-2] + b.shape[-1:])
    left: Tensor = a.float() @ solution.float() - b.float()
    return left.square().sum(-2).to(a.dtype)
