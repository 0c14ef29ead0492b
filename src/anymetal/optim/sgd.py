"""SGD."""

from __future__ import annotations

import torch
from torch.optim.optimizer import ParamsT

from anymetal.ops.optimizers import sgd_step_
from anymetal.optim.stepping import Batch, Group, Stepping, refuse_differentiable

Tensor = torch.Tensor


class SGD(Stepping, torch.optim.SGD):
    """torch.optim.SGD with kernels that take many tensors a launch; options as `Adam`.

    The momentum of a first step is the gradient. Where a gradient scaler leaves that step out, it
    is 0, and dampening counts from the next step on.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        refuse_differentiable("SGD", differentiable)
        super().__init__(
            params,
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
        )
        self._set_options(master_weights, stochastic_rounding, rounding_seed)

    def _row_names(self, group: Group) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] else []

    def _is_fresh(self, group: Group, param: Tensor) -> bool:
        # torch keeps None where there was a step without momentum.
        return bool(group["momentum"]) and self.state[param].get("momentum_buffer") is None

    def _update(self, group: Group, batch: Batch) -> None:
        common = self._common(group, batch)
        sgd_step_(
            batch.params,
            batch.grads,
            batch.states if group["momentum"] or common["master_weights"] else [],
            momentum=float(group["momentum"]),
            dampening=float(group["dampening"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            first=batch.fresh,
            grad_scale=self._scalar("grad_scale", batch.device),
            **common,
        )
