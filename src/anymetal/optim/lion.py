"""Lion."""

from __future__ import annotations

import torch
from torch.optim.optimizer import ParamsT

from anymetal.ops.optimizers import lion_step_
from anymetal.optim.stepping import Batch, Group, Stepping

Tensor = torch.Tensor


class Lion(Stepping):
    """The sign of an interpolated momentum (Chen et al., 2023), with decoupled weight decay.

    Its learning rate is three to ten times smaller than AdamW's, its weight decay as many times
    larger. Options as `Adam`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if len(betas) != 2:
            raise ValueError(f"Lion: betas is {betas}, expected two numbers")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults)
        self._set_options(master_weights, stochastic_rounding, rounding_seed)

    def _row_names(self, group: Group) -> list[str]:
        return ["exp_avg"]

    def _update(self, group: Group, batch: Batch) -> None:
        beta1, beta2 = group["betas"]
        lion_step_(
            batch.params,
            batch.grads,
            batch.states,
            beta1=beta1,
            beta2=beta2,
            weight_decay=float(group["weight_decay"]),
            maximize=group["maximize"],
            grad_scale=self._scalar("grad_scale", batch.device),
            **self._common(group, batch),
        )
