"""Lists of tensors as the steps of optimizers take them, and what a step costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anymetal.ops.declare import Case, Cost


def lists_case(
    shapes: Sequence[tuple[int, ...]], *, rows: int = 0, steps: bool = False, **keywords: Any
) -> Case:
    """Parameters of these shapes with gradients, `rows` rows of states and, if asked, steps."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator)

        params = [drawn(*shape).to(dtype).to(device) for shape in shapes]
        grads = [drawn(*shape).to(dtype).to(device) for shape in shapes]
        # Second moments are not negative, and the roots of small ones would be all that counts.
        states = [0.5 + drawn(rows, param.numel()).abs() for param in params] if rows else []
        args: list[Any] = [params, grads, [state.to(device) for state in states]]
        if steps:
            args.append(torch.arange(len(shapes), dtype=torch.float32).to(device))
        return args, dict(keywords)

    sizes = "x".join(str(n) for n in shapes[0]) or "scalar"
    words = [f"{len(shapes)} of {sizes}", *(f"{k}={v}" for k, v in keywords.items())]
    return Case(" ".join(words), make)


def step_cost(flops: int) -> Callable[..., Cost]:
    """Parameters and states are read and written, gradients read; `flops` an element."""

    def cost(
        params: list[torch.Tensor],
        grads: list[torch.Tensor],
        states: list[torch.Tensor],
        *_: Any,
        **__: Any,
    ) -> Cost:
        written = sum(tensor.nbytes for tensor in (*params, *states))
        read = written + sum(grad.nbytes for grad in grads)
        return Cost(read=read, write=written, flops=flops * sum(p.numel() for p in params))

    return cost


def states_like(
    params: Sequence[torch.Tensor], states: Sequence[torch.Tensor], row: int
) -> list[torch.Tensor]:
    """One state of each parameter in its shape, as torch's own steps take it."""
    return [state[row].view_as(param) for state, param in zip(states, params, strict=True)]


def float32_or_more(tensor: torch.Tensor) -> torch.Tensor:
    """As kernels compute: shorter types in float32. float64 stays, a reference is called in it."""
    return tensor.clone() if tensor.dtype == torch.float64 else tensor.float()
