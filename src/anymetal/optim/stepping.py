"""What the optimizers share: a step over batches of parameters, options of ours, loading states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from anymetal.optim.packed import MASTER, Packed, in_memory_order

Tensor = torch.Tensor
Group = dict[str, Any]
Key = tuple[torch.device, torch.dtype, torch.dtype, bool]


class Batch:
    """Parameters of a group that one operator takes: of one device and dtype, each with a gradient.

    `index` tells the batches of an optimizer apart; `fresh` parameters take their first step.
    """

    def __init__(
        self,
        key: Key,
        index: int,
        originals: list[Tensor],
        kept: list[dict[str, Any]],
        rows: list[Tensor],
    ) -> None:
        self.device, self.dtype, _, self.fresh = self.key = key
        self.index = index
        self.originals = originals
        self.kept = kept  # what the optimizer's `state` has for each
        self.states = rows
        self.params = [in_memory_order(p, p) for p in originals]
        self.grads = [in_memory_order(p.grad, p) for p in originals if p.grad is not None]


class Stepping(Optimizer):
    """An optimizer whose step is an operator over lists of tensors.

    Gradient scalers give it `grad_scale` and `found_inf` instead of asking the device whether
    gradients are finite.
    """

    _step_supports_amp_scaling = True

    def _row_names(self, group: Group) -> list[str]:
        """The states of a parameter in the order of rows, without master weights."""
        raise NotImplementedError

    def _update(self, group: Group, batch: Batch) -> None:
        """Calls the operator."""
        raise NotImplementedError

    def _set_options(
        self, master_weights: bool, stochastic_rounding: bool, rounding_seed: int
    ) -> None:
        """Options that torch does not have, for groups that do not name them themselves."""
        options = {
            "master_weights": master_weights,
            "stochastic_rounding": stochastic_rounding,
            "rounding_seed": rounding_seed,
            "rounding_calls": 0,
        }
        self.defaults.update(options)
        self._complete_groups()

    def _complete_groups(self) -> None:
        names = ("master_weights", "stochastic_rounding", "rounding_seed", "rounding_calls")
        for group in self.param_groups:
            for name in names:
                group.setdefault(name, self.defaults.get(name, 0))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._complete_groups()
        self._packed: dict[int, Packed] = {}

    # --- a step -----------------------------------------------------------------------------------

    @_disable_dynamo  # lists of tensors are looked up in dicts; torch.compile stops before
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step over all groups. `closure` evaluates the model again and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            count = 0
            for group in self.param_groups:
                for key, params in self._batches(group).items():
                    self._update(group, self._batch(group, key, count, params))
                    count += 1
                if group["stochastic_rounding"]:
                    group["rounding_calls"] += 1
        return loss

    def _batch(self, group: Group, key: Key, index: int, params: list[Tensor]) -> Batch:
        names = [*self._row_names(group)]
        if _has_master(group, params[0]):
            names.append(MASTER)
        kept = [self.state[param] if names else {} for param in params]
        rows = [self._rows(names, *each) for each in zip(params, kept, strict=True)]
        return Batch(key, index, params, kept, rows)

    def _batches(self, group: Group) -> dict[Key, list[Tensor]]:
        found: dict[Key, list[Tensor]] = {}
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if grad.layout != torch.strided:
                raise RuntimeError(self._sparse_message())
            key = (param.device, param.dtype, grad.dtype, self._is_fresh(group, param))
            found.setdefault(key, []).append(param)
        return found

    def _is_fresh(self, group: Group, param: Tensor) -> bool:
        """Whether a parameter's first step is another than its next ones."""
        return False

    def _sparse_message(self) -> str:
        return f"{type(self).__name__} does not support sparse gradients"

    def _rows(self, names: list[str], param: Tensor, state: dict[str, Any]) -> Tensor:
        """The states of a parameter; made, or put together of what was loaded."""
        packed_states: dict[int, Packed] = self.__dict__.setdefault("_packed", {})
        packed = packed_states.get(id(param))
        if packed is None or not packed.holds(names, state):
            packed = packed_states[id(param)] = Packed(param, names)
            packed.fill(param, state)
            state.update(packed.views)
        return packed.rows

    def _common(self, group: Group, batch: Batch) -> dict[str, Any]:
        """Arguments that the operators share."""
        seed = None
        if group["stochastic_rounding"] and batch.dtype == torch.bfloat16:
            # Batches differ in their seeds; a schema's integers have a sign.
            seed = (group["rounding_seed"] + 0x9E3779B97F4A7C15 * batch.index) & (2**63 - 1)
        return {
            **rate(group["lr"], batch.device),
            "master_weights": _has_master(group, batch.originals[0]),
            "rounding_seed": seed,
            "call": group["rounding_calls"],
            "found_inf": self._scalar("found_inf", batch.device),
        }

    def _scalar(self, name: str, device: torch.device) -> Tensor | None:
        """What a gradient scaler set, where the parameters are."""
        value = getattr(self, name, None)
        return None if value is None else value.to(device, torch.float32)

    # --- loading ----------------------------------------------------------------------------------

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state, of torch's own class too. States stay float32, where torch would round
        those of shorter parameters."""
        loaded: dict[str, Any] = {}
        before = self.register_load_state_dict_pre_hook(lambda _, given: loaded.update(given))
        after = self.register_load_state_dict_post_hook(
            lambda _: self._keep_float32(loaded), prepend=True
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _keep_float32(self, loaded: Mapping[str, Any]) -> None:
        for saved, group in zip(loaded["param_groups"], self.param_groups, strict=True):
            for key, param in zip(saved["params"], group["params"], strict=True):
                for name, value in loaded["state"].get(key, {}).items():
                    if isinstance(value, Tensor) and name != "step":
                        self.state[param][name] = value.to(param.device, torch.float32)


def rate(lr: float | Tensor, device: torch.device) -> dict[str, Any]:
    """The learning rate as operators take it: one on the device stays there."""
    if isinstance(lr, Tensor) and not lr.is_cpu:
        return {"lr": 0.0, "lr_tensor": lr.detach().to(device, torch.float32)}
    return {"lr": float(lr), "lr_tensor": None}


def _has_master(group: Group, param: Tensor) -> bool:
    return bool(group["master_weights"]) and param.dtype != torch.float32


def refuse_differentiable(name: str, differentiable: bool) -> None:
    if differentiable:
        raise ValueError(
            f"{name}: differentiable=True is not supported, kernels are not differentiated. Use"
            f" torch.optim.{name}"
        )
