"""Existing models with our operators: found by what modules compute, taken back without a trace."""

from anymetal.patch.functions import functional
from anymetal.patch.handle import Handle, Row
from anymetal.patch.models import GROUPS, transformers

__all__ = ["GROUPS", "Handle", "Row", "functional", "transformers"]
