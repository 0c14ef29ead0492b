"""Products of matrices."""

from anymetal.ops.matmul.matmul import addmm, linear, matmul

__all__ = ["addmm", "linear", "matmul"]
