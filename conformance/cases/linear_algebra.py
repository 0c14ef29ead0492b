"""Triangular solves, products, norms and the pieces of a blocked QR."""

from __future__ import annotations

import torch

from conformance.case import (
    EXACT,
    FACTORISATION,
    FLOAT,
    FLOAT_SUM,
    Launch,
    case,
    check,
    normal,
    unwritten,
)

FILE = "core_kernels.metal"


def triangular(batch: int, side: int, upper: bool = True) -> torch.Tensor:
    """Well-conditioned triangular matrices with a positive diagonal."""
    full = normal(batch, side, side) / side**0.5
    part = full.triu(1) if upper else full.tril(-1)
    matrices: torch.Tensor = part + torch.diag_embed(torch.rand(batch, side) + 1)
    return matrices


def solve(factor: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    x: torch.Tensor = torch.linalg.solve(factor.double(), right.double())
    return x


def single_solve(upper: bool) -> Launch:
    factor, right = triangular(1, 24, upper)[0], normal(24)
    expected = solve(factor, right)
    return Launch((factor, right, 24), (1,), (1,), [check("x", right, expected)])


case(FILE, "trsm_lower_kernel", FLOAT_SUM, "one thread")(lambda: single_solve(upper=False))
case(FILE, "trsm_upper_kernel", FLOAT_SUM, "one thread")(lambda: single_solve(upper=True))


def small_solve(side: int, one_thread: bool) -> Launch:
    batch, columns = 5, 3
    factor, right = triangular(batch, side), normal(batch, side, columns)
    x = unwritten(batch, side, columns)
    threads, group = ((batch,), (4,)) if one_thread else ((batch * 32,), (32,))
    checks = [check("x", x, solve(factor, right))]
    memory = {} if one_thread else {0: side * 4}
    return Launch((factor, right, x, batch, columns), threads, group, checks, memory)


case(FILE, "trsm_batched_8x8_register_kernel", FLOAT_SUM, "unrolled in registers")(
    lambda: small_solve(8, one_thread=True)
)
case(FILE, "trsm_batched_16x16_kernel", FLOAT_SUM)(lambda: small_solve(16, one_thread=False))
case(FILE, "trsm_batched_32x32_kernel", FLOAT_SUM)(lambda: small_solve(32, one_thread=False))


@case(FILE, "trsm_batched_kernel", FLOAT_SUM)
def batched_solve() -> Launch:
    batch, side, columns = 3, 21, 5
    factor, right = triangular(batch, side), normal(batch, side, columns)
    x = unwritten(batch, side, columns)
    return Launch(
        (factor, right, x, side, columns, batch),
        (batch * 64,),
        (64,),
        [check("x", x, solve(factor, right))],
        {0: side * columns * 4},
    )


def substitution(upper: bool, flip: bool = False) -> Launch:
    batch, side, columns = 3, 20, 6
    factor, right = triangular(batch, side, upper), normal(batch, side, columns)
    if flip:
        factor[:, ::3] *= -1
    expected = solve(factor, right)
    return Launch(
        (factor, right, side, columns, batch),
        (batch * 32,),
        (32,),
        [check("x", right, expected)],
        {0: side * 4},
    )


NEGATIVE = "takes a negative diagonal for a zero one (diag < 1e-10) and leaves the row unsolved"
case(FILE, "trsm_lower_batched_kernel", FLOAT_SUM)(lambda: substitution(upper=False))
case(FILE, "trsm_upper_batched_kernel", FLOAT_SUM)(lambda: substitution(upper=True))
case(FILE, "trsm_upper_batched_kernel", FLOAT_SUM, "some negative rows", known_wrong=NEGATIVE)(
    lambda: substitution(upper=True, flip=True)
)


@case(FILE, "cholesky_solve_batched_kernel", FACTORISATION)
def cholesky_solve() -> Launch:
    batch, side, columns = 3, 20, 4
    factor, right = triangular(batch, side, upper=False), normal(batch, side, columns)
    expected = torch.cholesky_solve(right.double(), factor.double())
    return Launch(
        (factor, right, side, columns, batch),
        (batch * 64,),
        (64,),
        [check("x", right, expected)],
        {0: side * 4},
    )


@case(FILE, "column_norms_kernel", FLOAT_SUM)
def column_norms() -> Launch:
    rows, columns, group = 100, 7, 64
    a, norms = normal(rows, columns), unwritten(columns)
    return Launch(
        (a, norms, rows, columns),
        (columns * group,),
        (group,),
        [check("norms", norms, a.double().norm(dim=0))],
        {0: group * 4},
    )


def batched_reduction(trace: bool) -> Launch:
    batch, side, group = 4, 30, 64
    a, out = normal(batch, side, side), unwritten(batch)
    wide = a.double()
    expected = wide.diagonal(dim1=1, dim2=2).sum(-1) if trace else wide.flatten(1).norm(dim=1)
    sizes = (side, batch) if trace else (side, side, batch)
    return Launch(
        (a, out, *sizes), (batch * group,), (group,), [check("out", out, expected)], {0: group * 4}
    )


case(FILE, "trace_batched_kernel", FLOAT_SUM)(lambda: batched_reduction(trace=True))
case(FILE, "frobenius_norm_batched_kernel", FLOAT_SUM)(lambda: batched_reduction(trace=False))


@case(FILE, "syrk_batched_kernel", FLOAT_SUM)
def symmetric_product() -> Launch:
    batch, rows, columns = 3, 40, 17
    a, c = normal(batch, rows, columns), unwritten(batch, columns, columns)
    expected = a.double().mT @ a.double()
    arguments = (a, c, rows, columns, batch)
    threads = (columns, columns, batch)
    return Launch(arguments, threads, (8, 8, 1), [check("c", c, expected)])


@case(FILE, "batched_qt_b_kernel", FLOAT_SUM)
def transposed_product() -> Launch:
    batch, rows, columns, right = 2, 31, 9, 5
    q, b = normal(batch, rows, columns), normal(batch, rows, right)
    c = unwritten(batch, columns, right)
    arguments = (q, b, c, rows, columns, right, batch)
    expected = q.double().mT @ b.double()
    return Launch(arguments, (right, columns, batch), (8, 8, 1), [check("c", c, expected)])


@case(FILE, "householder_vector_kernel", FLOAT_SUM)
def householder_vector() -> Launch:
    count = 90
    x, v = normal(count), unwritten(count)
    tau, beta = unwritten(1), unwritten(1)
    wide = x.double()
    sign = 1.0 if wide[0] >= 0 else -1.0
    head = wide[0] + sign * wide.norm()
    expected_v = torch.cat([torch.ones(1, dtype=torch.float64), wide[1:] / head])
    checks = [
        check("v", v, expected_v),
        check("tau", tau, 2 / expected_v.square().sum()[None]),
        check("beta", beta, -sign * wide.norm()[None]),
    ]
    return Launch((x, v, tau, beta, count, 1), (64,), (64,), checks)


@case(FILE, "apply_householder_kernel", FLOAT_SUM)
def apply_householder() -> Launch:
    rows, columns, column, group = 40, 9, 2, 64
    a, v, tau = normal(rows, columns), normal(rows - column), 0.3
    expected = a.double()
    part = expected[column:, column + 1 :]
    part -= tau * v.double()[:, None] * (v.double() @ part)
    arguments = (a, v, tau, rows, columns, columns, column)
    return Launch(arguments, (group, columns - column - 1), (group, 1), [check("a", a, expected)])


def unit_lower(rows: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Reflectors as a QR leaves them (garbage on and above the diagonal), and as they are meant."""
    stored = normal(rows, count) / rows**0.5
    meant = stored.double().tril(-1) + torch.eye(rows, count, dtype=torch.float64)
    return stored, meant


@case(FILE, "larfb_step1_vtc", FLOAT_SUM)
def block_reflector_products() -> Launch:
    rows, columns, count = 30, 11, 4
    stored, meant = unit_lower(rows, count)
    c, w = normal(rows, columns), unwritten(count, columns)
    arguments = (stored, c, w, rows, columns, count, count, columns, columns, 0)
    return Launch(arguments, (count, columns), (4, 8), [check("w", w, meant.T @ c.double())])


@case(FILE, "larfb_step2_tw", FLOAT_SUM)
def block_reflector_triangle() -> Launch:
    count, columns = 6, 13
    t, w = normal(count, count).triu(), normal(count, columns)
    expected = t.double().T @ w.double()
    return Launch((t, w, count, columns, 1), (columns,), (8,), [check("w", w, expected)])


@case(FILE, "larfb_step3_cvw", FLOAT_SUM)
def block_reflector_update() -> Launch:
    rows, columns, count = 30, 11, 4
    stored, meant = unit_lower(rows, count)
    c, w = normal(rows, columns), normal(count, columns)
    expected = c.double() - meant @ w.double()
    arguments = (stored, w, c, rows, columns, count, count, columns, columns, 0)
    return Launch(arguments, (rows, columns), (8, 8), [check("c", c, expected)])


def block_triangle(count: int) -> Launch:
    """T with I - V T V^T equal to the product of the reflectors."""
    rows, group = 30, 32
    stored, meant = unit_lower(rows, count)
    tau = 2 / meant.square().sum(0)
    t = torch.zeros(count, count)
    product = torch.eye(rows, dtype=torch.float64)
    for i in range(count):
        product = product @ (torch.eye(rows) - tau[i] * meant[:, i, None] * meant[:, i])
    # V has full column rank, so I - product = V T V^T determines T.
    inverse = torch.linalg.pinv(meant)
    expected = inverse @ (torch.eye(rows) - product) @ inverse.T
    arguments = (stored, tau.float(), t, rows, count, count, 0)
    return Launch(arguments, (group,), (group,), [check("t", t, expected)], {0: group * 4})


case(FILE, "larft_kernel", FLOAT_SUM, "two reflectors")(lambda: block_triangle(2))
case(
    FILE,
    "larft_kernel",
    FLOAT_SUM,
    "five reflectors",
    known_wrong="multiplies by T in place from the last row up, so it reads entries it has "
    "already overwritten; right for one or two reflectors only",
)(lambda: block_triangle(5))


@case(FILE, "column_norm_sort_kernel", EXACT)
def sorted_columns() -> Launch:
    batch, rows, columns, group = 2, 12, 9, 32
    a = normal(batch, rows, columns)
    out, order = unwritten(batch, rows, columns), torch.zeros(batch, columns, dtype=torch.int32)
    expected = a.double().norm(dim=1).argsort(-1, descending=True)
    picked = a.gather(2, expected[:, None, :].expand_as(a))
    checks = [check("order", order, expected), check("sorted", out, picked)]
    arguments = (a, out, order, rows, columns, batch)
    return Launch(arguments, (batch * group,), (group,), checks, {0: columns * 8})


@case(FILE, "sign_canonicalize_kernel", EXACT)
def canonical_signs() -> Launch:
    batch, rows, columns, group = 2, 12, 9, 16
    u, v = normal(batch, rows, columns), normal(batch, columns, columns)
    largest = u.gather(1, u.abs().argmax(1, keepdim=True))
    checks = [check("u", u, u * largest.sign()), check("v", v, v * largest.sign())]
    return Launch((u, v, rows, columns, batch), (batch * group,), (group,), checks)


def column_norm(dtype: torch.dtype) -> Launch:
    batch, rows, columns = 2, 33, 6
    a = normal(batch, columns, rows, dtype=dtype)
    norms = unwritten(batch, columns, dtype=dtype)
    arguments = (a, norms, rows, columns, rows * columns, columns)
    expected = a.double().norm(dim=-1)
    return Launch(arguments, (columns, batch), (4, 1), [check("norms", norms, expected)])


case(FILE, "column_norm_kernel_float", FLOAT)(lambda: column_norm(torch.float32))
