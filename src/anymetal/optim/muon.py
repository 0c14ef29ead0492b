"""Muon."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.optim.optimizer import ParamsT

from anymetal.ops.optimizers import muon_momentum_, muon_step_
from anymetal.optim.stepping import Batch, Group, Stepping

Tensor = torch.Tensor


class Muon(Stepping, torch.optim.Muon):
    """torch.optim.Muon: momentum made orthogonal by Newton-Schulz steps in bfloat16.

    Momentum and the step itself are kernels over many tensors a launch; between them are torch's
    matrix products, three a Newton-Schulz step for all matrices of one shape. Options as `Adam`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        if ns_steps >= 100:
            raise ValueError(f"Muon: ns_steps is {ns_steps}; expected fewer than 100")
        if len(ns_coefficients) != 3:
            raise ValueError(f"Muon: ns_coefficients expects 3 numbers, got {ns_coefficients}")
        super().__init__(
            params,
            lr,  # type: ignore[arg-type]
            weight_decay,
            momentum,
            nesterov,
            ns_coefficients,
            eps,
            ns_steps,
            adjust_lr_fn,
        )
        self._set_options(master_weights, stochastic_rounding, rounding_seed)

    def _row_names(self, group: Group) -> list[str]:
        return ["momentum_buffer"]

    def _update(self, group: Group, batch: Batch) -> None:
        stacks = _stacks(batch.params)
        muon_momentum_(
            _matrices(stacks, len(batch.params)),
            batch.grads,
            batch.states,
            momentum=float(group["momentum"]),
            nesterov=group["nesterov"],
            grad_scale=self._scalar("grad_scale", batch.device),
            found_inf=self._scalar("found_inf", batch.device),
        )
        orthogonal = [(places, _orthogonal(stack, group)) for places, stack in stacks]
        muon_step_(
            batch.params,
            _matrices(orthogonal, len(batch.params)),
            batch.states,
            factors=[_factor(group["adjust_lr_fn"], param.shape) for param in batch.originals],
            weight_decay=float(group["weight_decay"]),
            **self._common(group, batch),
        )


Stacks = list[tuple[list[int], Tensor]]


def _stacks(params: list[Tensor]) -> Stacks:
    """Room for the updates of all parameters: one tensor a shape, and the places it serves."""
    shapes: dict[torch.Size, list[int]] = {}
    for i, param in enumerate(params):
        shapes.setdefault(param.shape, []).append(i)
    return [
        (places, torch.empty(len(places), *shape, dtype=torch.bfloat16, device=params[0].device))
        for shape, places in shapes.items()
    ]


def _matrices(stacks: Stacks, count: int) -> list[Tensor]:
    """The matrices of all stacks in the order of their parameters."""
    found = {i: stack[k] for places, stack in stacks for k, i in enumerate(places)}
    return [found[i] for i in range(count)]


def _orthogonal(matrices: Tensor, group: Group) -> Tensor:
    """Each matrix of a stack with its singular values brought near 1."""
    if not matrices.numel():
        return matrices
    if len(matrices) == 1:
        return _newton_schulz(matrices[0], torch.addmm, group)[None]  # torch's own, bit by bit
    return _newton_schulz(matrices, torch.baddbmm, group)


def _newton_schulz(matrices: Tensor, product: Callable[..., Tensor], group: Group) -> Tensor:
    """Newton-Schulz steps by the smaller of the two Gram matrices; `product` adds to a product."""
    a, b, c = group["ns_coefficients"]
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    norms = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    x = x / norms.clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.mT
        change = product(gram, gram, gram, beta=b, alpha=c)
        x = product(x, change, x, beta=a)
    return x.mT if is_tall else x


def _factor(adjust: str | None, shape: torch.Size) -> float:
    """What the learning rate is multiplied by, so that matrices of all shapes change alike."""
    rows, columns = shape
    if adjust == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns)) if columns else 1.0
