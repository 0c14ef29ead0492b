"""Parameters and gradients that two optimizers see alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

SHAPES = ((33, 7), (5,), (), (0, 3), (16, 65), (2, 3, 4, 5))
MATRICES = ((12, 7), (1, 5), (0, 3), (16, 17), (20, 11))
Parameters = list[torch.nn.Parameter]


def parameters(
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    return [torch.nn.Parameter(values.to(dtype).to(device)) for values in drawn]


class Gradients:
    """Gradients that depend on the parameters and on random numbers; one object a trajectory."""

    def __init__(self, seed: int = 1) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def set(self, params: Parameters, scale: float = 1.0) -> None:
        for param in params:
            noise = torch.randn(param.shape, generator=self._generator).to(param.device)
            grad = scale * (noise + 0.3 * param.detach().float())
            param.grad = torch.empty_like(param).copy_(grad)


def trajectory(
    make: Callable[[Parameters], torch.optim.Optimizer], params: Parameters, steps: int = 100
) -> torch.optim.Optimizer:
    optimizer, gradients = make(params), Gradients()
    for _ in range(steps):
        gradients.set(params)
        optimizer.step()
    return optimizer


def difference(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    """The largest difference over the largest value."""
    ours, others = (
        torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors])
        for tensors in (mine, theirs)
    )
    return float((ours - others).abs().max() / others.abs().max())


def states(optimizer: torch.optim.Optimizer, name: str) -> list[Any]:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return [optimizer.state[param][name] for param in params]
