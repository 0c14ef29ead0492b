"""Layers that `kernels.kernelize` puts into models: their forwards, for the modules' own weights.

The package asks for classes without a constructor and without other members than these. `self` is
the module of the model, whose class keeps the forward that takes what ours does not. Rotations are
not here: transformers has three forms of them under one name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from anymetal import ops
from anymetal.patch.layers import takes

FOLDER = Path(__file__).parent / "layer_repository"

Tensor = torch.Tensor


class RMSNorm(nn.Module):
    has_backward = True
    can_torch_compile = True
    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        if not takes(hidden_states, self.weight):
            return type(self).forward(self, hidden_states)
        return ops.rms_norm(
            hidden_states, hidden_states.shape[-1:], self.weight, self.variance_epsilon
        )


class SiLU(nn.Module):
    has_backward = True
    can_torch_compile = True

    def forward(self, input: Tensor) -> Tensor:
        return ops.silu(input) if takes(input) else type(self).forward(self, input)


class GeLU(nn.Module):
    has_backward = True
    can_torch_compile = True

    def forward(self, input: Tensor) -> Tensor:
        return ops.gelu(input) if takes(input) else type(self).forward(self, input)


class GeluTanh(nn.Module):
    has_backward = True
    can_torch_compile = True

    def forward(self, input: Tensor) -> Tensor:
        if not takes(input):
            return type(self).forward(self, input)
        return ops.gelu(input, approximate="tanh")


# transformers' names of layers, and ours.
LAYERS = {
    "RMSNorm": "RMSNorm",
    "SiLU": "SiLU",
    "GeLU": "GeLU",
    "GeluTanh": "GeluTanh",
    "NewGELU": "GeluTanh",
}


def kernel_mapping(*devices: str) -> dict[str, Any]:
    """What `kernels.use_kernel_mapping` takes: our layers from their folder, for `mps` tensors."""
    from anymetal.patch.models import require  # noqa: PLC0415

    require("kernels", "kernels")
    from kernels import LocalLayerRepository  # noqa: PLC0415

    return {
        theirs: {
            device: LocalLayerRepository(FOLDER, layer_name=ours) for device in devices or ("mps",)
        }
        for theirs, ours in LAYERS.items()
    }
