"""softmax and log_softmax."""

from anymetal.ops.softmax.softmax import log_softmax, softmax

__all__ = ["log_softmax", "softmax"]
