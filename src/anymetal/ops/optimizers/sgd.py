"""sgd_step_: a step of stochastic gradient descent over a list of parameters."""

from __future__ import annotations

import torch
from torch.optim.sgd import sgd

from anymetal.ops.declare import Arguments, on_call, operator
from anymetal.ops.optimizers.cases import float32_or_more, lists_case, states_like, step_cost
from anymetal.ops.optimizers.scaling import run_scaled
from anymetal.ops.optimizers.tables import check_gradients, check_scalars, check_states

Tensor = torch.Tensor
NAME = "sgd_step_"


def state_rows(momentum: float, master_weights: bool) -> int:
    """Momentum, where there is one, then the float32 parameter."""
    return int(momentum != 0) + master_weights


@on_call
def _reference(call: Arguments) -> None:
    for i, param in enumerate(call.params):
        value = (
            call.states[i][-1].clone() if call.master_weights else float32_or_more(param).flatten()
        )
        grad = float32_or_more(call.grads[i]).flatten() * (-1 if call.maximize else 1)
        grad = grad + call.weight_decay * value
        if call.momentum:
            before = call.states[i][0]
            before.copy_(
                grad if call.first else call.momentum * before + (1 - call.dampening) * grad
            )
            grad = grad + call.momentum * before if call.nesterov else before
        value = value - call.lr * grad
        if call.master_weights:
            call.states[i][-1].copy_(value)
        param.copy_(value.view(param.shape))


@on_call
def _timed(call: Arguments) -> None:
    """torch's fused step, which takes momentum of the parameters' dtype."""
    if call.params[0].dtype != torch.float32 or call.master_weights or call.first:
        _reference(call)
        return
    before = states_like(call.params, call.states, 0) if call.momentum else []
    sgd(
        call.params,
        call.grads,
        [*before] or [None] * len(call.params),
        fused=True,
        weight_decay=call.weight_decay,
        momentum=call.momentum,
        lr=call.lr,
        dampening=call.dampening,
        nesterov=call.nesterov,
        maximize=call.maximize,
    )


@operator(
    source="sgd.metal",
    reference=_reference,
    timed=_timed,
    cases=[
        lists_case([(5,), (0, 3), (), (33, 7)], lr=0.1),
        lists_case([(31,)], lr=0.1, rows=1, momentum=0.9, weight_decay=0.1),
        lists_case([(3, 43)], lr=0.1, rows=1, momentum=0.9, first=True, maximize=True),
        lists_case([(2, 5, 13)], lr=0.1, rows=1, momentum=0.9, dampening=0.5),
        lists_case([(257,)] * 11, lr=0.1, rows=2, momentum=0.9, nesterov=True, master_weights=True),
    ],
    bench=[lists_case([(1 << 20,)] * 4, lr=0.1, rows=1, momentum=0.9)],
    cost=step_cost(6),
    mutates=["params", "states"],
    no_gradient="a step of an optimizer has none. Call it under torch.no_grad()",
)
def sgd_step_(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[Tensor],
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
    first: bool = False,
    master_weights: bool = False,
    rounding_seed: int | None = None,
    call: int = 0,
    lr_tensor: Tensor | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """A step of SGD over parameters of one dtype.

    `states[i]` are rows of float32, an element for each of `params[i]`: momentum where it is not 0,
    then with `master_weights` the parameter itself. In the `first` step the momentum becomes the
    gradient. The other arguments are those of `adam_step_`.
    """
    check_gradients(NAME, params, grads)
    rows = state_rows(momentum, master_weights)
    check_states(NAME, states, params, rows)
    of = params[0] if params else None
    check_scalars(NAME, of, lr_tensor=lr_tensor, grad_scale=grad_scale, found_inf=found_inf)


@sgd_step_.run
@on_call
def _(call: Arguments) -> None:
    run_scaled(
        sgd_step_,
        "sgd_step",
        call,
        momentum=call.momentum,
        rest=1 - call.dampening,
        has_momentum=int(call.momentum != 0),
        nesterov=int(call.nesterov),
        first=int(call.first),
    )
