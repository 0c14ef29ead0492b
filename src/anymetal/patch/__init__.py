"""Existing models with our operators: found by what modules compute, taken back without a trace."""

from anymetal.patch.functions import functional
from anymetal.patch.handle import Handle, Row
from anymetal.patch.hub_layers import kernel_mapping
from anymetal.patch.models import GROUPS, transformers
from anymetal.patch.pipelines import diffusers

__all__ = [
    "GROUPS",
    "Handle",
    "Row",
    "diffusers",
    "functional",
    "kernel_mapping",
    "transformers",
]
