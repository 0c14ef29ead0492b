"""QR, Cholesky, LU, inverse, solve, and SVD and eigenvalues by Jacobi rotations."""

from __future__ import annotations

import torch

from conformance.case import (
    FACTORISATION,
    FLOAT_SUM,
    Check,
    Launch,
    Tolerance,
    case,
    check,
    normal,
    unwritten,
)

FILE = "core_kernels.metal"
DIAGONAL_RACE = (
    "race: thread 0 writes the new diagonal element while the other threads still have to read "
    "the old one"
)


def qr_checks(a: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> list[Check]:
    """Q R is A, Q has orthonormal columns, R is upper triangular."""
    identity = torch.eye(q.shape[-1], dtype=torch.float64).expand(*q.shape[:-2], -1, -1)
    return [
        Check("Q R", lambda: q.double() @ r.double(), a.double()),
        Check("Q^T Q", lambda: q.double().mT @ q.double(), identity),
        Check("below R", lambda: r.double().tril(-1), torch.zeros_like(r, dtype=torch.float64)),
    ]


def square_qr(side: int, group: int, floats: int, one_thread: bool = False) -> Launch:
    batch = 6
    a = normal(batch, side, side)
    q, r = unwritten(batch, side, side), unwritten(batch, side, side)
    threads = (batch,) if one_thread else (batch * group,)
    memory = {0: floats * 4} if floats else {}
    return Launch((a, q, r, batch), threads, (group,), qr_checks(a, q, r), memory)


case(FILE, "qr_batched_8x8_register_kernel", FACTORISATION, "a matrix a thread")(
    lambda: square_qr(8, 4, 0, one_thread=True)
)
case(FILE, "qr_batched_16x16_kernel", FACTORISATION, "simd_sum and simdgroup barriers")(
    lambda: square_qr(16, 32, 560)
)
case(FILE, "qr_batched_32x32_single_thread_kernel", FACTORISATION)(lambda: square_qr(32, 1, 2080))
case(FILE, "qr_batched_32x32_kernel", FACTORISATION, "64 unrolled steps, columns in registers")(
    lambda: square_qr(32, 32, 64)
)
case(FILE, "qr_batched_64x64_kernel", FACTORISATION, "all 32 KiB of threadgroup memory")(
    lambda: square_qr(64, 1, 8192)
)


@case(
    FILE,
    "qr_batched_kernel",
    FACTORISATION,
    known_wrong="only lane 0 of the first simdgroup gets the sum of squares (a shuffle-down tree), "
    "yet every thread computes tau from it",
)
def batched_qr() -> Launch:
    batch, rows, columns, group = 3, 20, 12, 64
    a = normal(batch, rows, columns)
    q, r = unwritten(batch, rows, columns), unwritten(batch, columns, columns)
    floats = rows * columns * 2 + columns * 2 + group
    return Launch(
        (a, q, r, rows, columns, batch),
        (batch * group,),
        (group,),
        qr_checks(a, q, r),
        {0: floats * 4},
    )


def fused_qr(group: int) -> Launch:
    rows, columns = 24, 10
    a = normal(rows, columns)
    q, r = unwritten(rows, columns), unwritten(columns, columns)
    floats = rows * columns * 2 + columns + 256
    return Launch((a, q, r, rows, columns), (group,), (group,), qr_checks(a, q, r), {0: floats * 4})


case(FILE, "qr_full_fused_kernel", FACTORISATION, "one thread")(lambda: fused_qr(1))
case(FILE, "qr_full_fused_kernel", FACTORISATION, "64 threads", known_wrong=DIAGONAL_RACE)(
    lambda: fused_qr(64)
)


def panel_qr(group: int, floats: int) -> Launch:
    """LAPACK's packed form: R above, the reflectors below the diagonal; Q from torch."""
    rows, columns = 24, 8
    original = normal(rows, columns)
    panel, tau = original.clone(), unwritten(columns)

    def product() -> torch.Tensor:
        q = torch.linalg.householder_product(panel.double(), tau.double())
        rebuilt: torch.Tensor = q @ panel.double()[:columns].triu()
        return rebuilt

    return Launch(
        (panel, tau, rows, columns, columns),
        (group,),
        (group,),
        [Check("Q R", product, original.double())],
        {0: floats * 4},
    )


case(FILE, "geqr2_fused_kernel", FACTORISATION, "one thread")(lambda: panel_qr(1, 24 * 8))
case(FILE, "geqr2_fused_kernel", FACTORISATION, "64 threads", known_wrong=DIAGONAL_RACE)(
    lambda: panel_qr(64, 24 * 8)
)
case(FILE, "geqr2_panel_kernel", FACTORISATION, "64 threads", known_wrong=DIAGONAL_RACE)(
    lambda: panel_qr(64, 64)
)


@case(FILE, "cholesky_batched_kernel", FACTORISATION)
def cholesky() -> Launch:
    batch, side, group = 3, 33, 64
    root = normal(batch, side, side) / side**0.5
    a = root @ root.mT + torch.eye(side)
    expected = torch.linalg.cholesky(a.double())
    return Launch(
        (a, side, batch), (batch * group,), (group,), [check("l", a, expected)], {0: side**2 * 4}
    )


def general(batch: int, side: int) -> torch.Tensor:
    """Well-conditioned matrices whose LU needs row swaps."""
    # torch's Q is stored by columns.
    turned: torch.Tensor = torch.linalg.qr(normal(batch, side, side)).Q.contiguous()
    return turned + 0.1 * normal(batch, side, side)


@case(FILE, "lu_batched_kernel", FACTORISATION, "partial pivoting")
def lu() -> Launch:
    batch, side, group = 3, 24, 32
    a = general(batch, side)
    pivots = torch.zeros(batch, side, dtype=torch.int32)
    expected, expected_pivots = torch.linalg.lu_factor(a.double())
    # torch counts pivots from one.
    checks = [check("lu", a, expected), check("pivots", pivots, expected_pivots - 1)]
    return Launch((a, pivots, side, batch), (batch * group,), (group,), checks)


def inverse(swaps: bool) -> Launch:
    batch, side, group = 2, 16, 32
    a = general(batch, side)
    if not swaps:
        a = a * 0.1 + torch.eye(side)
    factor, pivots = torch.linalg.lu_factor(a.double())
    inverted = unwritten(batch, side, side)
    arguments = (factor.float().contiguous(), (pivots - 1).to(torch.int32), inverted, side, batch)
    checks = [check("inverse", inverted, torch.linalg.inv(a.double()))]
    return Launch(arguments, (batch * group,), (group,), checks)


case(FILE, "inverse_batched_kernel", FACTORISATION, "no row swaps")(lambda: inverse(False))
case(
    FILE,
    "inverse_batched_kernel",
    FACTORISATION,
    "with row swaps",
    known_wrong="never applies the pivots: the loop that should swap entries is empty",
)(lambda: inverse(True))


@case(FILE, "solve_batched_kernel", FACTORISATION)
def solve() -> Launch:
    batch, side, columns, group = 3, 24, 5, 32
    a, b = general(batch, side), normal(batch, side, columns)
    expected = torch.linalg.solve(a.double(), b.double())
    pivots = torch.zeros(batch, side, dtype=torch.int32)
    arguments = (a, b, pivots, side, columns, batch)
    return Launch(arguments, (batch * group,), (group,), [check("x", b, expected)])


def round_robin(count: int) -> torch.Tensor:
    """Every pair of columns once: count - 1 steps of count / 2 disjoint pairs."""
    ring = list(range(count))
    steps = []
    for _ in range(count - 1):
        steps.append([(ring[i], ring[count - 1 - i]) for i in range(count // 2)])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return torch.tensor(steps, dtype=torch.int32)


JACOBI = Tolerance(1e-4, "ten sweeps of float rotations that stop at 1e-6")


def svd_checks(original: torch.Tensor, a: torch.Tensor, v: torch.Tensor) -> list[Check]:
    """Columns are stored as rows: A has become U S, and V has collected the rotations."""
    values = torch.linalg.svdvals(original.double())
    return [
        Check("S", lambda: a.double().norm(dim=-1).sort(-1, descending=True).values, values),
        Check("U S V^T", lambda: a.double().mT @ v.double(), original.double()),
    ]


@case(FILE, "svd_fused_block_kernel_float", JACOBI, "a thread a pair, device barriers")
def svd_generic() -> Launch:
    batch, rows, columns = 2, 20, 8
    original = normal(batch, rows, columns)
    a = original.mT.contiguous()
    v = torch.eye(columns).repeat(batch, 1, 1)
    pairs = round_robin(columns)
    steps, count = pairs.shape[:2]
    sizes = (rows, columns, count, steps, 1, rows * columns, columns * columns)
    checks = svd_checks(original, a, v)
    return Launch((a, v, pairs, *sizes), (count, 1, batch), (count, 1, 1), checks)


def svd_fixed(side: int, group: int) -> Launch:
    original = normal(1, side, side) + torch.diag(torch.linspace(0, 20, side))
    a, v = original.mT.contiguous(), torch.eye(side)[None].clone()
    arguments = (a, v, round_robin(side), side, side * side, side * side)
    return Launch(arguments, (group, 1, 1), (group, 1, 1), svd_checks(original, a, v))


case(FILE, "svd_fused_block_kernel_64_float", JACOBI, "1024 threads, 630 barriers, 32 KiB")(
    lambda: svd_fixed(64, 1024)
)
case(
    FILE,
    "svd_fused_block_kernel_128_float",
    JACOBI,
    "shuffles in half simdgroups, atomics",
    known_wrong="race: thread 0 clears the count of rotations for the next sweep before the others "
    "have looked at it, and they leave the loop",
)(lambda: svd_fixed(128, 1024))


def rotated(
    columns: torch.Tensor, pairs: torch.Tensor, vectors: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One Jacobi step in float64: rotate each pair of rows until it is orthogonal."""
    a, v = columns.double(), vectors.double()
    for p, q in pairs.tolist():
        cross = a[p] @ a[q]
        tau = (a[q] @ a[q] - a[p] @ a[p]) / (2 * cross)
        sign = 1.0 if tau >= 0 else -1.0
        t = sign / (tau.abs() + (1 + tau * tau).sqrt())
        c = 1 / (1 + t * t).sqrt()
        turn = torch.stack([torch.stack([c, -t * c]), torch.stack([t * c, c])])
        a[[p, q]] = turn @ a[[p, q]]
        v[[p, q]] = turn @ v[[p, q]]
    return a, v


def jacobi_step(dtype: torch.dtype, uniforms: bool) -> Launch:
    """A struct of sizes through `constant ICBUniforms*`, or the sizes one by one."""
    rows, columns, group, step = 40, 8, 32, 2
    a, v = normal(columns, rows, dtype=dtype), torch.eye(columns).to(dtype)
    pairs = round_robin(columns)
    count = pairs.shape[1]
    used = pairs[step] if uniforms else pairs[0]
    expected_a, expected_v = rotated(a, used, v)
    sizes = [rows, columns, rows * columns, columns * columns, count]
    if uniforms:
        record = torch.tensor(sizes, dtype=torch.int32)
        rest: tuple[torch.Tensor | int, ...] = (record, torch.tensor([step], dtype=torch.int32))
    else:
        rest = (rows, columns, count, 7, 1, rows * columns, columns * columns)
    checks = [check("a", a, expected_a), check("v", v, expected_v)]
    return Launch((a, v, pairs, *rest), (count * group, 1, 1), (group, 1, 1), checks, {0: 12})


HALF_ROTATION = Tolerance(4e-3, "sine and cosine rounded to half")
BFLOAT_ROTATION = Tolerance(3e-2, "sine and cosine rounded to bfloat")
case(FILE, "jacobi_rotate_kernel_optimized_float", FLOAT_SUM)(
    lambda: jacobi_step(torch.float32, uniforms=False)
)
case(FILE, "jacobi_rotate_kernel_icb_float", FLOAT_SUM)(
    lambda: jacobi_step(torch.float32, uniforms=True)
)
case(FILE, "jacobi_rotate_kernel_icb_vec4_half", HALF_ROTATION)(
    lambda: jacobi_step(torch.float16, uniforms=True)
)
case(FILE, "jacobi_rotate_kernel_vec4_clean_float", FLOAT_SUM, "a template with a host name")(
    lambda: jacobi_step(torch.float32, uniforms=True)
)
case(FILE, "jacobi_rotate_kernel_vec4_clean_bfloat", BFLOAT_ROTATION, "bfloat4 arithmetic")(
    lambda: jacobi_step(torch.bfloat16, uniforms=True)
)


@case(FILE, "dot_columns_kernel_float", FLOAT_SUM, "eigenvalues of rotated columns")
def eigenvalues() -> Launch:
    side, group = 12, 64
    values, vectors = torch.linalg.eigh((root := normal(side, side).double()) + root.T)
    # A V = V diag(values); columns are stored as rows.
    rotated_columns, stored = (vectors * values).T.float().contiguous(), vectors.T.float()
    out = unwritten(1, side)
    sizes = (side, side, side * side, side * side, side)
    return Launch(
        (rotated_columns, stored.contiguous(), out, *sizes),
        (side * group, 1, 1),
        (group, 1, 1),
        [check("values", out, values[None])],
        {0: 8},
    )
