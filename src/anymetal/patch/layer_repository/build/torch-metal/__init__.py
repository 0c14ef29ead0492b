"""Our layers, as the package `kernels` loads them; the same ones for every variant."""

from anymetal.patch import hub_layers as layers

__all__ = ["layers"]
