"""lion_step_: a step of Lion over a list of parameters."""

from __future__ import annotations

import torch

from anymetal.ops.declare import Arguments, on_call, operator
from anymetal.ops.optimizers.cases import float32_or_more, lists_case, step_cost
from anymetal.ops.optimizers.scaling import run_scaled
from anymetal.ops.optimizers.tables import check_gradients, check_scalars, check_states

Tensor = torch.Tensor
NAME = "lion_step_"


@on_call
def _reference(call: Arguments) -> None:
    for i, (param, state) in enumerate(zip(call.params, call.states, strict=True)):
        value = state[-1].clone() if call.master_weights else float32_or_more(param).flatten()
        grad = float32_or_more(call.grads[i]).flatten() * (-1 if call.maximize else 1)
        direction = state[0].lerp(grad, 1 - call.beta1)
        value = value * (1 - call.lr * call.weight_decay) - call.lr * direction.sign()
        state[0].lerp_(grad, 1 - call.beta2)
        if call.master_weights:
            state[-1].copy_(value)
        param.copy_(value.view(param.shape))


@operator(
    source="lion.metal",
    reference=_reference,
    cases=[
        lists_case([(5,), (0, 3), (), (33, 7)], lr=0.01, rows=1),
        lists_case([(31,)], lr=0.01, rows=1, weight_decay=0.1, maximize=True),
        lists_case([(257,)] * 11, lr=0.01, rows=2, beta1=0.95, master_weights=True),
    ],
    bench=[lists_case([(1 << 20,)] * 4, lr=0.01, rows=1)],
    cost=step_cost(9),
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
@on_call
def _(call: Arguments) -> None:
    run_scaled(lion_step_, "lion_step", call, rest1=1 - call.beta1, rest2=1 - call.beta2)
