"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from anymetal.ops.optimizers import adam_step_
from anymetal.optim.stepping import Batch, Group, Stepping, refuse_differentiable

Tensor = torch.Tensor
Betas = tuple[float | Tensor, float | Tensor]


class _AdamSteps(Stepping):
    """Steps are counted on the device: no step that a gradient scaler leaves out is counted, and no
    one asks it whether it does."""

    def _row_names(self, group: Group) -> list[str]:
        return ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]

    def _sparse_message(self) -> str:
        return "Adam does not support sparse gradients, please consider SparseAdam instead"

    def _update(self, group: Group, batch: Batch) -> None:
        beta1, beta2 = (float(beta) for beta in group["betas"])
        adam_step_(
            batch.params,
            batch.grads,
            batch.states,
            self._steps(batch),
            beta1=beta1,
            beta2=beta2,
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled_weight_decay=group["decoupled_weight_decay"],
            amsgrad=group["amsgrad"],
            maximize=group["maximize"],
            grad_scale=self._scalar("grad_scale", batch.device),
            **self._common(group, batch),
        )

    def _steps(self, batch: Batch) -> Tensor:
        """The steps of a batch as one tensor, of which each parameter's is a view."""
        counted: dict[Any, tuple[Tensor, tuple[Tensor, ...]]]
        counted = self.__dict__.setdefault("_counted", {})
        key = (batch.index, batch.key[:3])
        states = batch.kept
        steps, views = counted.get(key, (torch.empty(0), ()))
        if len(views) == len(states) and all(
            state.get("step") is view for state, view in zip(states, views, strict=True)
        ):
            return steps
        zero = torch.zeros((), device=batch.device)
        given = (torch.as_tensor(state.get("step", zero)) for state in states)
        steps = torch.stack([step.to(batch.device, torch.float32).view(()) for step in given])
        counted[key] = (steps, steps.unbind())
        for state, view in zip(states, counted[key][1], strict=True):
            state["step"] = view
        return steps


class Adam(_AdamSteps, torch.optim.Adam):
    """torch.optim.Adam with kernels that take many tensors a launch.

    Beyond torch's arguments: `master_weights` keeps float16 and bfloat16 parameters in float32 too
    and updates those; `stochastic_rounding` rounds bfloat16 parameters at random, by
    `rounding_seed`. States are float32 whatever the parameters are. `foreach`, `fused` and
    `capturable` choose among torch's own kernels and change nothing here.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        refuse_differentiable("Adam", differentiable)
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            fused=fused,
            decoupled_weight_decay=decoupled_weight_decay,
        )
        self._set_options(master_weights, stochastic_rounding, rounding_seed)


class AdamW(_AdamSteps, torch.optim.AdamW):
    """torch.optim.AdamW with kernels that take many tensors a launch; options as `Adam`."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        refuse_differentiable("AdamW", differentiable)
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            fused=fused,
        )
        self._set_options(master_weights, stochastic_rounding, rounding_seed)
