"""fill, axpy and copy, also in place."""

from anymetal.ops.basics.basics import axpy, axpy_, copy, copy_, fill, fill_

__all__ = ["axpy", "axpy_", "copy", "copy_", "fill", "fill_"]
