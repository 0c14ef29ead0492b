"""A step whose scalars may live on the device, as kernels take them (see shared/scaling.h)."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.ops.declare import AnyOperator, Arguments
from anymetal.ops.optimizers.tables import (
    Entry,
    Written,
    bindable,
    entries,
    kernel_name,
    rounding,
    run_tables,
)

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


def run_scaled(operator: AnyOperator, kernel: str, call: Arguments, **numbers: Any) -> None:
    """Launches a step's kernel over the tensors of a call; `numbers` are the optimizer's own."""
    written = Written()
    found = entries(written, call.params, call.grads, call.states)
    if not found:
        return
    buffers, scaled = scaling(found, call.lr, call.lr_tensor, call.grad_scale, call.found_inf)
    run_tables(
        operator,
        kernel_name(kernel, call.params, call.grads),
        found,
        *buffers,
        scaling=scaled,
        weight_decay=call.weight_decay,
        sign=-1.0 if call.maximize else 1.0,
        master=int(call.master_weights),
        rounding=rounding(call.rounding_seed, call.call),
        **numbers,
    )
    written.finish()
