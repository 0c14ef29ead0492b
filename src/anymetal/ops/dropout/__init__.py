"""Dropout without a stored mask."""

from anymetal.ops.dropout.dropout import dropout, dropout_add

__all__ = ["dropout", "dropout_add"]
