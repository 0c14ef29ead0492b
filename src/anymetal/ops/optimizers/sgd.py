"""sgd_step_: a step of stochastic gradient descent over a list of parameters."""

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
NAME = "sgd_step_"


def state_rows(momentum: float, master_weights: bool) -> int:
    """Momentum, where there is one, then the float32 parameter."""
    return int(momentum != 0) + master_weights


def _reference(
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
    **_: Any,
) -> None:
    for i, param in enumerate(params):
        value = states[i][-1].clone() if master_weights else float32_or_more(param).flatten()
        grad = float32_or_more(grads[i]).flatten() * (-1 if maximize else 1)
        grad = grad + weight_decay * value
        if momentum:
            before = states[i][0]
            before.copy_(grad if first else momentum * before + (1 - dampening) * grad)
            grad = grad + momentum * before if nesterov else before
        value = value - lr * grad
        if master_weights:
            states[i][-1].copy_(value)
        param.copy_(value.view(param.shape))


def _cost(
    params: list[Tensor], grads: list[Tensor], states: list[Tensor], *_: Any, **__: Any
) -> Cost:
    written = sum(tensor.nbytes for tensor in (*params, *states))
    read = written + sum(grad.nbytes for grad in grads)
    return Cost(read=read, write=written, flops=6 * sum(param.numel() for param in params))


@operator(
    source="sgd.metal",
    reference=_reference,
    cases=[
        lists_case([(5,), (0, 3), (), (33, 7)], lr=0.1),
        lists_case([(31,)], lr=0.1, rows=1, momentum=0.9, weight_decay=0.1),
        lists_case([(3, 43)], lr=0.1, rows=1, momentum=0.9, first=True, maximize=True),
        lists_case([(2, 5, 13)], lr=0.1, rows=1, momentum=0.9, dampening=0.5),
        lists_case([(257,)] * 11, lr=0.1, rows=2, momentum=0.9, nesterov=True, master_weights=True),
    ],
    bench=[lists_case([(1 << 20,)] * 4, lr=0.1, rows=1, momentum=0.9)],
    cost=_cost,
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
def _(*args: Any, **kwargs: Any) -> None:
    call = SimpleNamespace(**sgd_step_.signature.bind(args, kwargs))
    written = Written()
    found = entries(written, call.params, call.grads, call.states)
    if not found:
        return
    scalars = (call.lr, call.lr_tensor, call.grad_scale, call.found_inf)
    buffers, scaled = scaling(found, *scalars)
    run_tables(
        sgd_step_,
        kernel_name("sgd_step", call.params, call.grads),
        found,
        *buffers,
        scaling=scaled,
        weight_decay=call.weight_decay,
        momentum=call.momentum,
        rest=1 - call.dampening,
        sign=-1.0 if call.maximize else 1.0,
        has_momentum=int(call.momentum != 0),
        nesterov=int(call.nesterov),
        first=int(call.first),
        master=int(call.master_weights),
        rounding=rounding(call.rounding_seed, call.call),
    )
    written.finish()
