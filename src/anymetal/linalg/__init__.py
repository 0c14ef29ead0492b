"""torch.linalg's names, signatures, named tuples and errors, with Metal kernels behind."""

from anymetal.linalg.cholesky import cholesky, cholesky_ex, cholesky_inverse, cholesky_solve
from anymetal.linalg.eigh import eigh, eigvalsh
from anymetal.linalg.exponential import matrix_exp
from anymetal.linalg.least_squares import cond, lstsq, matrix_rank, pinv
from anymetal.linalg.lu import det as _det
from anymetal.linalg.lu import (
    inv,
    inv_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    slogdet,
    solve,
    solve_ex,
)
from anymetal.linalg.lu import lu_solve as _lu_solve
from anymetal.linalg.norms import matrix_norm
from anymetal.linalg.outputs import with_out
from anymetal.linalg.qr import geqrf, qr
from anymetal.linalg.qr import householder_product as _householder_product
from anymetal.linalg.qr import ormqr as _ormqr
from anymetal.linalg.requirements import LinAlgError
from anymetal.linalg.svd import svd, svd_lowrank, svdvals
from anymetal.linalg.triangular import solve_triangular as _solve_triangular

det = with_out(_det)
householder_product = with_out(_householder_product)
lu_solve = with_out(_lu_solve)
ormqr = with_out(_ormqr)
solve_triangular = with_out(_solve_triangular)

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cholesky_inverse",
    "cholesky_solve",
    "cond",
    "det",
    "eigh",
    "eigvalsh",
    "geqrf",
    "householder_product",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matrix_exp",
    "matrix_norm",
    "matrix_rank",
    "ormqr",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svd_lowrank",
    "svdvals",
]
