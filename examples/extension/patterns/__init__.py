"""Five patterns of Metal extensions for PyTorch, as functions on mps tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from patterns._library import load

load()

_ops: Any = torch.ops.patterns


def scale(
    x: torch.Tensor, bias: torch.Tensor | None = None, factor: float = 1.0, clamped: bool = False
) -> torch.Tensor:
    """`x * factor + bias`, not below 0 where it is clamped; the bias is one row."""
    return _ops.scale(x, bias, factor, clamped)


def row_sums(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row, in one phase or two by its length."""
    return _ops.row_sums(x)


def copy_blocks(cache: torch.Tensor, sources: Sequence[int], targets: Sequence[int]) -> None:
    """Copy blocks of a paged cache, `cache[target] = cache[source]`, by blit commands."""
    _ops.copy_blocks(cache, sources, targets)


def sgd_step(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    momenta: Sequence[torch.Tensor],
    rate: float,
    momentum: float,
) -> None:
    """One step of SGD with momentum over many tensors, encoded in one block."""
    _ops.sgd_step(parameters, gradients, momenta, rate, momentum)


def gated_silu(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """`x * silu(gate)`, with gradients, also inside of torch.compile."""
    return _ops.gated_silu(x, gate)


@torch.library.register_fake("patterns::scale")
def _(x: Any, bias: Any, factor: float, clamped: bool) -> Any:
    return torch.empty_like(x)


@torch.library.register_fake("patterns::row_sums")
def _(x: Any) -> Any:
    return x.new_empty(x.shape[0])


@torch.library.register_fake("patterns::copy_blocks")
def _(cache: Any, sources: Any, targets: Any) -> None:
    return None


@torch.library.register_fake("patterns::sgd_step")
def _(parameters: Any, gradients: Any, momenta: Any, rate: float, momentum: float) -> None:
    return None


@torch.library.register_fake("patterns::gated_silu")
def _(x: Any, gate: Any) -> Any:
    return torch.empty_like(x)


@torch.library.register_fake("patterns::gated_silu_backward")
def _(grad: Any, x: Any, gate: Any) -> Any:
    return torch.empty_like(x), torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Any) -> Any:
    return _ops.gated_silu_backward(grad.contiguous(), *ctx.saved_tensors)


torch.library.register_autograd("patterns::gated_silu", _backward, setup_context=_keep)
