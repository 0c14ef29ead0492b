"""lion_step_: a step of Lion over a list of parameters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from anymetal.ops.declare import Cost, operator
from anymetal.ops.optimizers.cases import float32_or_more, lists_case
from anymetal.ops.optimizers.scaling import scaling
from anymetal.ops.optimizers.tables import (
    Written,
    check_gradients,
    check_scalars,
    check_states,
    entries,
    kernel_name,
    rounding,
    run_tables,
)

Tensor = torch.Tensor
NAME = "lion_step_"


def _reference(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[Tensor],
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    maximize: bool = False,
    master_weights: bool = False,
    **_: Any,
) -> None:
    for i, (param, state) in enumerate(zip(params, states, strict=True)):
        value = state[-1].clone() if master_weights else float32_or_more(param).flatten()
        grad = float32_or_more(grads[i]).flatten() * (-1 if maximize else 1)
        direction = state[0].lerp(grad, 1 - beta1)
        value = value * (1 - lr * weight_decay) - lr * direction.sign()
        state[0].lerp_(grad, 1 - beta2)
        if master_weights:
            state[-1].copy_(value)
        param.copy_(value.view(param.shape))


def _cost(
    params: list[Tensor], grads: list[Tensor], states: list[Tensor], *_: Any, **__: Any
) -> Cost:
    written = sum(tensor.nbytes for tensor in (*params, *states))
    read = written + sum(grad.nbytes for grad in grads)
    return Cost(read=read, write=written, flops=9 * sum(param.numel() for param in params))


@operator(
    source="lion.metal",
    reference=_reference,
    cases=[
        lists_case([(5,), (0, 3), (), (33, 7)], lr=0.01, rows=1),
        lists_case([(31,)], lr=0.01, rows=1, weight_decay=0.1, maximize=True),
        lists_case([(257,)] * 11, lr=0.01, rows=2, beta1=0.95, master_weights=True),
    ],
    bench=[lists_case([(1 << 20,)] * 4, lr=0.01, rows=1)],
    cost=_cost,
    mutates=["params", "states"],
    no_gradient="a step of an optimizer has none. Call it under torch.no_grad()",
)
def lion_step_(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[Tensor],
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    maximize: bool = False,
    master_weights: bool = False,
    rounding_seed: int | None = None,
    call: int = 0,
    lr_tensor: Tensor | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """A step of Lion over parameters of one dtype, with decoupled weight decay.

    `states[i]` are rows of float32, an element for each of `params[i]`: momentum, then with
    `master_weights` the parameter itself. The other arguments are those of `adam_step_`.
    """
    check_gradients(NAME, params, grads)
    rows = 1 + master_weights
    check_states(NAME, states, params, rows)
    of = params[0] if params else None
    check_scalars(NAME, of, lr_tensor=lr_tensor, grad_scale=grad_scale, found_inf=found_inf)


@lion_step_.run
def _(*args: Any, **kwargs: Any) -> None:
    call = SimpleNamespace(**lion_step_.signature.bind(args, kwargs))
    written = Written()
    found = entries(written, call.params, call.grads, call.states)
    if not found:
        return
    scalars = (call.lr, call.lr_tensor, call.grad_scale, call.found_inf)
    buffers, scaled = scaling(found, *scalars)
    run_tables(
        lion_step_,
        kernel_name("lion_step", call.params, call.grads),
        found,
        *buffers,
        scaling=scaled,
        rest1=1 - call.beta1,
        rest2=1 - call.beta2,
        weight_decay=call.weight_decay,
        sign=-1.0 if call.maximize else 1.0,
        master=int(call.master_weights),
        rounding=rounding(call.rounding_seed, call.call),
    )
    written.finish()
