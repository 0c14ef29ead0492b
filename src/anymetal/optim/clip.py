"""Clipping of gradients by their norm."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from anymetal.ops.optimizers import clip_gradients_

Tensor = torch.Tensor


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Clips gradients as torch.nn.utils.clip_grad_norm_: two launches for every 28 of them.

    The norm stays on the device, a float32 tensor without dimensions whatever the gradients are;
    `error_if_nonfinite` alone waits for it. All gradients are on one device. `foreach` chooses
    among torch's own kernels and changes nothing here.
    """
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [parameter.grad for parameter in listed if parameter.grad is not None]
    if not grads:
        return torch.tensor(0.0)
    for grad in grads:
        if grad.layout != torch.strided:
            raise RuntimeError(
                f"clip_grad_norm_ does not support gradients of layout {grad.layout}"
            )
    max_norm, norm_type = float(max_norm), float(norm_type)
    norm = torch.empty((), dtype=torch.float32, device=grads[0].device)
    with torch.no_grad():
        if error_if_nonfinite:
            clip_gradients_(grads, norm, math.inf, norm_type)
            if not norm.isfinite():
                raise RuntimeError(
                    f"The total norm of order {norm_type} for gradients from `parameters` is"
                    " non-finite, so it cannot be clipped. To disable this error and scale the"
                    " gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
                )
        clip_gradients_(grads, norm, max_norm, norm_type)
    return norm
