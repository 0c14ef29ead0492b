"""QR: geqrf, householder_product, ormqr and qr."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.algorithms import qr as algorithm
from anymetal.linalg.algorithms.matrices import deliver, flat, room_in
from anymetal.linalg.examples import case, conditioned, cost, random
from anymetal.linalg.outputs import with_out
from anymetal.linalg.ratios import by, of_geqrf, of_qr
from anymetal.linalg.requirements import (
    Named,
    check_device,
    check_matrix,
    dtype_name,
    in_float,
    named,
    wide,
)
from anymetal.linalg.triangular import solve_triangular
from anymetal.ops.declare import Call, Case, Gradients, operator

SOURCE = "algorithms/qr.metal"
Pair = tuple[Tensor, Tensor]
_BENCH = tuple(case("", (random, s)) for s in ((1000, 8, 8), (1000, 32, 32), (512, 512)))


# --- the reflections -----------------------------------------------------------------------------


def _geqrf_reference(A: Tensor) -> Pair:
    reflections, tau = torch.geqrf(A)
    return reflections, tau


@operator(
    source=SOURCE,
    reference=_geqrf_reference,
    baseline=in_float(_geqrf_reference),
    cases=(
        case("empty", (random, (3, 0))),
        case("", (conditioned, (1, 1))),
        case("", (conditioned, (2, 9, 5))),
        case("", (conditioned, (2, 33, 35))),
    ),
    bench=_BENCH,
    cost=cost(lambda m, n: 2 * m * n * min(m, n)),
    results=("a", "tau"),
    ratios=by(of_geqrf),
    no_gradient="reflections are no smooth function; differentiate qr",
    name="geqrf",
)
def _geqrf(A: Tensor) -> Pair:
    check_matrix("geqrf", "A", A)
    return A.new_empty(A.shape), A.new_empty(*A.shape[:-2], min(A.shape[-2:]))


@_geqrf.run
def _(output: Pair, A: Tensor) -> None:
    for room, found in zip(output, algorithm.factor(flat(A)), strict=True):
        room.copy_(found.reshape(room.shape))


@with_out
def geqrf(input: Tensor) -> Named:
    """R and below it Householder reflections, and their factors tau, as torch.geqrf."""
    return named("geqrf", _geqrf(input))


def _reflections_case(*shapes: tuple[int, ...], **keywords: bool) -> Case:
    """Reflections of a random matrix, and further random tensors."""
    words = ["x".join(str(size) for size in shape) for shape in shapes]

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Tensor], dict[str, bool]]:
        first, *others = (random(generator, shape) for shape in shapes)
        tensors = [*torch.geqrf(first), *others]
        return [tensor.to(device, dtype) for tensor in tensors], dict(keywords)

    return Case(" ".join([*words, *(f"{k}={v}" for k, v in keywords.items())]), make)


def _flat_tau(tau: Tensor) -> Tensor:
    return tau.reshape(tau.shape[:-1].numel(), tau.shape[-1]).float().contiguous()


def _check_tau(begins: str, matrix: Tensor, tau: Tensor) -> None:
    if tau.dim() != matrix.dim() - 1:
        raise RuntimeError(
            f"{begins}: Expected tau to have one dimension less than input, but got tau.ndim equal"
            f" to {tau.dim()} and input.ndim is equal to {matrix.dim()}"
        )
    if tau.shape[:-1] != matrix.shape[:-2]:
        raise RuntimeError(
            f"{begins}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got"
            f" {list(tau.shape[:-1])}"
        )
    check_device(begins, matrix, "tau", tau, "input")


@operator(
    source=SOURCE,
    reference=in_float(torch.linalg.householder_product),
    cases=(
        _reflections_case((0, 4, 3)),
        _reflections_case((2, 5, 3)),
    ),
    bench=[_reflections_case((1000, 8, 8)), _reflections_case((512, 64))],
    cost=cost(lambda m, n: 2 * m * n * n),
)
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of Householder reflections."""
    check_matrix("householder_product", "A", A)
    if A.shape[-2] < A.shape[-1]:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to"
            " input.shape[-1]"
        )
    if tau.dim() and tau.shape[-1] > A.shape[-1]:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to"
            " tau.shape[-1]"
        )
    if tau.dtype != A.dtype:
        raise RuntimeError(
            f"torch.linalg.householder_product: tau dtype {dtype_name(tau)} does not match input"
            f" dtype {dtype_name(A)}"
        )
    _check_tau("torch.linalg.householder_product", A, tau)
    return A.new_empty(A.shape)


@householder_product.run
def _(output: Tensor, A: Tensor, tau: Tensor) -> None:
    deliver(output, algorithm.orthogonal(flat(A), _flat_tau(tau), room_in(output)))


@householder_product.backward(keep=["A", "tau", "output"])
def _(call: Call, grad: Tensor) -> Gradients:
    a, tau, grad = wide(call.A, call.tau, grad)
    product = call.output if a.dtype == call.A.dtype else householder_product(a, tau)
    grad_a, grad_tau, _ = _reflections_gradient(a, tau, product, grad)
    return {"A": grad_a.to(call.A.dtype), "tau": grad_tau.to(call.A.dtype)}


def _reflections_gradient(
    a: Tensor, tau: Tensor, product: Tensor, grad: Tensor, *, transpose: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of H1 H2 ... C (H = I - tau v v'), or of ... H2 H1 C, by A, tau and C.

    With M = H(i-1) ... H1 grad and S = H(i+1) ... C, the gradient by Hi is M S'. The inverse of a
    reflection, I + tau / (1 - tau v'v) v v', takes it from the product again.
    """
    count = tau.shape[-1]
    unit = torch.eye(a.shape[-2], count, dtype=a.dtype, device=a.device)
    columns, factors = [a.new_zeros(())] * count, [a.new_zeros(())] * count
    vectors = a[..., :count].tril(-1) + unit
    for i in reversed(range(count)) if transpose else range(count):
        v, factor = vectors[..., i, None], tau[..., i, None, None]
        inside = 1 - factor * (v.mT @ v)
        product = product + factor / inside * (v @ (v.mT @ product))
        of_product, of_grad = product.mT @ v, grad.mT @ v
        columns[i] = -factor * (grad @ of_product + product @ of_grad)
        factors[i] = -(of_grad.mT @ of_product)[..., 0]
        grad = grad - factor * (v @ of_grad.mT)
    if count == 0:
        return torch.zeros_like(a), torch.zeros_like(tau), grad
    beside = a.new_zeros(*a.shape[:-1], a.shape[-1] - count)
    return torch.cat([torch.cat(columns, -1).tril(-1), beside], -1), torch.cat(factors, -1), grad


def _ormqr_reference(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    return torch.ormqr(input, tau, other, left, transpose)


@operator(
    source=SOURCE,
    reference=in_float(_ormqr_reference),
    cases=(
        _reflections_case((0, 4, 3), (0, 4, 2)),
        _reflections_case((2, 5, 3), (2, 5, 2)),
        _reflections_case((4, 2), (3, 4), left=False, transpose=True),
    ),
    cost=cost(lambda m, n: 4 * m * n),
)
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Q C, Q' C, C Q or C Q' for the whole Q that Householder reflections make."""
    check_matrix("ormqr", "input", input)
    _check_other(input, tau, other, -2 if left else -1)
    _check_tau("torch.ormqr", input, tau)
    return other.new_empty(other.shape)


def _check_other(input: Tensor, tau: Tensor, other: Tensor, side: int) -> None:
    for name, tensor in (("tau", tau), ("other", other)):
        if tensor.dtype != input.dtype:
            raise RuntimeError(
                f"torch.ormqr: Expected input and {name} to have the same dtype, but input has"
                f" dtype{dtype_name(input)} and {name} has dtype {dtype_name(tensor)}"
            )
    check_matrix("ormqr", "other", other)
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    count = min(other.shape[side], input.shape[-1])
    if tau.dim() and tau.shape[-1] > count:
        raise RuntimeError(
            f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])"
        )
    if other.dim() != input.dim():
        raise RuntimeError(
            "torch.ormqr: Expected other to have the same number of dimensions as input, but got"
            f" other.ndim equal to {other.dim()} and input.ndim is equal to {input.dim()}"
        )
    if other.shape[:-2] != input.shape[:-2]:
        raise RuntimeError(
            "torch.ormqr: Expected batch dimensions of other to be equal to input.shape[:-2], but"
            f" got {list(other.shape[:-2])}"
        )
    check_device("torch.ormqr", input, "other", other, "input")


@ormqr.run
def _(
    output: Tensor,
    input: Tensor,
    tau: Tensor,
    other: Tensor,
    left: bool = True,
    transpose: bool = False,
) -> None:
    c = flat(other if left else other.mT)
    transposed = transpose if left else not transpose
    product = algorithm.reflect(flat(input), _flat_tau(tau), c, transpose=transposed)
    output.copy_((product if left else product.mT).reshape(output.shape))


@ormqr.backward(keep=["input", "tau", "other", "output"])
def _(call: Call, grad: Tensor) -> Gradients:
    a, tau, grad = wide(call.input, call.tau, grad)
    product = call.output
    if product.dtype != torch.float32:
        product = ormqr(a, tau, wide(call.other), call.left, call.transpose)
    transpose = call.transpose
    if not call.left:  # C Q is (Q' C')'
        product, grad, transpose = product.mT, grad.mT, not transpose
    found = _reflections_gradient(a, tau, product, grad, transpose=transpose)
    grads = (*found[:2], found[2] if call.left else found[2].mT)
    names = ("input", "tau", "other")
    return {n: g.to(call.input.dtype) for n, g in zip(names, grads, strict=True)}


# --- Q and R -------------------------------------------------------------------------------------


def _qr_reference(A: Tensor, mode: str = "reduced") -> Pair:
    q, r = torch.linalg.qr(A, mode=mode)
    return q, r


@operator(
    source=SOURCE,
    reference=_qr_reference,
    baseline=in_float(_qr_reference),
    cases=(
        case("empty", (random, (0, 3))),
        case("", (conditioned, (1, 1))),
        case("", (conditioned, (2, 9, 5))),
        case("", (conditioned, (2, 5, 9)), mode="complete"),
        case("", (conditioned, (40, 35))),
    ),
    bench=_BENCH,
    cost=cost(lambda m, n: 4 * m * n * min(m, n)),
    results=("Q", "R"),
    ratios=by(of_qr),
    name="qr",
)
def _qr(A: Tensor, mode: str = "reduced") -> Pair:
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r',"
            " or 'complete'"
        )
    check_matrix("qr", "A", A)
    *batch, m, n = A.shape
    rows = m if mode == "complete" else min(m, n)
    q = A.new_empty(0) if mode == "r" else A.new_empty(*batch, m, rows)
    return q, A.new_empty(*batch, rows, n)


@_qr.run
def _(output: Pair, A: Tensor, mode: str = "reduced") -> None:
    q, r = output
    upper = room_in(r)
    if mode == "r" or not algorithm.both(flat(A), room := room_in(q), upper):
        a, tau = algorithm.factor(flat(A))
        torch.triu(a[:, : r.shape[-2]], out=upper)
        if mode != "r":
            room = algorithm.orthogonal(a, tau, room_in(q))
    deliver(r, upper)
    if mode != "r":
        deliver(q, room)


@_qr.backward(keep=["A", "Q", "R"])
def _(call: Call, grad_q: Tensor, grad_r: Tensor) -> Gradients:
    m, n = call.A.shape[-2:]
    if call.mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please"
            " use linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr."
        )
    if call.mode == "complete" and m > n:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
        )
    q, r = wide(call.Q, call.R)
    if call.Q.dtype != torch.float32:
        q, r = _qr(wide(call.A), call.mode)
    grad_q, grad_r = wide(grad_q, grad_r)
    if m >= n:
        return {"A": _tall_gradient(q, r, grad_q, grad_r).to(call.A.dtype)}
    # The columns past the square are Q' times those of A.
    beside = wide(call.A)[..., m:]
    grad_q = grad_q + beside @ grad_r[..., m:].mT
    square = _tall_gradient(q, r[..., :m], grad_q, grad_r[..., :m])
    return {"A": torch.cat([square, q @ grad_r[..., m:]], -1).to(call.A.dtype)}


def _tall_gradient(q: Tensor, r: Tensor, grad_q: Tensor, grad_r: Tensor) -> Tensor:
    """(grad_Q + Q sym(M)) R^-T with M = R grad_R' - grad_Q' Q and its lower triangle mirrored."""
    inner = r @ grad_r.mT - grad_q.mT @ q
    mirrored = inner.tril() + inner.tril(-1).mT
    return solve_triangular(r.mT, grad_q + q @ mirrored, upper=False, left=False)


@with_out
def qr(A: Tensor, mode: str = "reduced") -> Named:
    """Q and R with A = Q R, as torch.linalg.qr; `mode` is "reduced", "complete" or "r"."""
    return named("linalg_qr", _qr(A, mode))
