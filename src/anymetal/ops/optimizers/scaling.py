"""Scalars of a step that may live on the device, as kernels take them (see shared/scaling.h)."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.ops.optimizers.tables import Entry, bindable

Tensor = torch.Tensor


def scaling(
    found: list[Entry],
    lr: float,
    lr_tensor: Tensor | None,
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
) -> tuple[list[Tensor], dict[str, Any]]:
    """Three buffers and `struct Scaling`."""
    given = (lr_tensor, grad_scale, found_inf)
    buffers = [found[0].state if scalar is None else bindable(scalar) for scalar in given]
    names = ("has_lr", "has_scale", "has_found")
    flags = {name: int(scalar is not None) for name, scalar in zip(names, given, strict=True)}
    return buffers, {"lr": lr, **flags}
