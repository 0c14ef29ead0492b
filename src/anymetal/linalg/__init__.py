"""torch.linalg's names, signatures, named tuples and errors, with Metal kernels behind."""

from anymetal.linalg.cholesky import cholesky, cholesky_ex, cholesky_inverse, cholesky_solve
from anymetal.linalg.lu import (
    det,
    inv,
    inv_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    slogdet,
    solve,
    solve_ex,
)
from anymetal.linalg.requirements import LinAlgError
from anymetal.linalg.triangular import solve_triangular

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cholesky_inverse",
    "cholesky_solve",
    "det",
    "inv",
    "inv_ex",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
]
