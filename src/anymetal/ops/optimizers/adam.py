"""adam_step_: a step of Adam or AdamW over a list of parameters."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.optim.adam import adam

from anymetal.ops.declare import Arguments, on_call, operator
from anymetal.ops.declare.checks import check_dtype, check_shape, check_writable
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.optimizers.cases import float32_or_more, lists_case, states_like, step_cost
from anymetal.ops.optimizers.tables import (
    Written,
    by_width,
    check_device,
    check_gradients,
    check_scalars,
    check_states,
    entries,
    kernel_name,
    rounding,
    run_tables,
)

Tensor = torch.Tensor
NAME = "adam_step_"
PREPARED = 5  # words of the struct that a step's numbers are in


def state_rows(amsgrad: bool, master_weights: bool) -> int:
    """Both moments, then the largest second moment, then the float32 parameter."""
    return 2 + amsgrad + master_weights


@on_call
def _reference(call: Arguments) -> None:
    call.steps += 1
    for i, (param, state) in enumerate(zip(call.params, call.states, strict=True)):
        value = float32_or_more(param).flatten()
        if call.master_weights:
            value = state[-1].clone()
        grad = float32_or_more(call.grads[i]).flatten() * (-1 if call.maximize else 1)
        if call.decoupled_weight_decay:
            value = value * (1 - call.lr * call.weight_decay)
        else:
            grad = grad + call.weight_decay * value
        state[0].lerp_(grad, 1 - call.beta1)
        state[1].mul_(call.beta2).addcmul_(grad, grad, value=1 - call.beta2)
        second = state[1]
        if call.amsgrad:
            second = state[2].copy_(torch.maximum(state[2], second))
        step = call.steps[i].cpu().double()  # which no GPU of Apple's has
        root = (second / (1 - call.beta2**step).to(second)).sqrt() + call.eps
        value = value - call.lr / (1 - call.beta1**step).to(value) * state[0] / root
        if call.master_weights:
            state[-1].copy_(value)
        param.copy_(value.view(param.shape))


@on_call
def _timed(call: Arguments) -> None:
    """torch's fused step, which takes states of the parameters' dtype."""
    if call.params[0].dtype != torch.float32 or call.master_weights:
        _reference(call)
        return
    adam(
        call.params,
        call.grads,
        states_like(call.params, call.states, 0),
        states_like(call.params, call.states, 1),
        states_like(call.params, call.states, 2) if call.amsgrad else [],
        [*call.steps],
        fused=True,
        decoupled_weight_decay=call.decoupled_weight_decay,
        amsgrad=call.amsgrad,
        beta1=call.beta1,
        beta2=call.beta2,
        lr=call.lr,
        weight_decay=call.weight_decay,
        eps=call.eps,
        maximize=call.maximize,
    )


_case = functools.partial(lists_case, steps=True, lr=1e-2)
_adamw = functools.partial(_case, rows=2, weight_decay=0.1, decoupled_weight_decay=True)


@operator(
    source="adam.metal",
    reference=_reference,
    timed=_timed,
    cases=[
        _case([(0,)], rows=2),
        _case([(5,), (0, 3), (), (33, 7)], rows=2),
        _case([(31,)], rows=2),
        _case([(3, 43), (1,)], rows=2, weight_decay=0.1, maximize=True, eps=1e-3),
        _case([(2, 5, 13), (40,)], rows=3, amsgrad=True, beta1=0.8, beta2=0.95),
        _adamw([(257,)] * 11),
        _case([(4099,), (32, 32)], rows=4, amsgrad=True, master_weights=True),
    ],
    bench=[_adamw([(1 << 16,)] * 2), _adamw([(1 << 20,)] * 4)],
    cost=step_cost(14),
    mutates=["params", "states", "steps"],
    no_gradient="a step of an optimizer has none. Call it under torch.no_grad()",
)
def adam_step_(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[Tensor],
    steps: Tensor,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled_weight_decay: bool = False,
    amsgrad: bool = False,
    maximize: bool = False,
    master_weights: bool = False,
    rounding_seed: int | None = None,
    call: int = 0,
    lr_tensor: Tensor | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """A step of Adam, or with `decoupled_weight_decay` of AdamW, over parameters of one dtype.

    `states[i]` are rows of float32, an element for each of `params[i]`: both moments, then with
    `amsgrad` the largest second moment, then with `master_weights` the parameter itself. `steps`
    counts for each parameter. Scalars on the device: `lr_tensor` in place of `lr`, `grad_scale`
    that gradients are divided by, `found_inf` that leaves the step out where it is not 0. With
    `rounding_seed`, bfloat16 parameters are rounded at random; `call` tells the steps apart.
    """
    check_gradients(NAME, params, grads)
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise ValueError(f"{NAME}: argument '{name}' expects 0 up to 1, got {beta}")
    rows = state_rows(amsgrad, master_weights)
    check_states(NAME, states, params, rows)
    check_dtype(NAME, "steps", steps, [torch.float32])
    check_shape(NAME, "steps", steps, (len(params),), "one for each of 'params'")
    check_writable(NAME, "steps", steps)
    first = params[0] if params else None
    if first is not None:
        check_device(NAME, "steps", steps, first)
    check_scalars(NAME, first, lr_tensor=lr_tensor, grad_scale=grad_scale, found_inf=found_inf)


@adam_step_.run
@on_call
def _(call: Arguments) -> None:
    if not call.params:
        return
    written = Written()
    prepared = _count_steps(call, written.contiguous(call.steps))
    for width, found in by_width(
        adam_step_, entries(written, call.params, call.grads, call.states)
    ):
        run_tables(
            adam_step_,
            kernel_name("adam_step", call.params, call.grads, width),
            found,
            prepared,
            rest1=1 - call.beta1,
            beta2=call.beta2,
            rest2=1 - call.beta2,
            eps=call.eps,
            l2=0.0 if call.decoupled_weight_decay else call.weight_decay,
            sign=-1.0 if call.maximize else 1.0,
            amsgrad=int(call.amsgrad),
            master=int(call.master_weights),
            rounding=rounding(call.rounding_seed, call.call),
        )
    written.finish()


def _count_steps(call: Any, steps: Tensor) -> Tensor:
    """Counts, and gives the numbers of the step for each parameter: no count comes to the host."""
    prepared = torch.empty(len(steps), PREPARED, dtype=torch.float32, device=steps.device)
    scalars = (call.lr_tensor, call.grad_scale, call.found_inf)
    numbers = {
        "lr": call.lr,
        "log_beta1": math.log(call.beta1) if call.beta1 else -math.inf,
        "log_beta2": math.log(call.beta2) if call.beta2 else -math.inf,
        "weight_decay": call.weight_decay if call.decoupled_weight_decay else 0.0,
        "has_lr": int(call.lr_tensor is not None),
        "has_scale": int(call.grad_scale is not None),
        "has_found": int(call.found_inf is not None),
    }
    size = choice_for(adam_step_, call.params[0], "elementwise").group_size
    adam_step_.kernels.kernel("count_steps", steps.device)(
        steps,
        prepared,
        *(steps if scalar is None else scalar.reshape(1) for scalar in scalars),
        numbers,
        threads=len(steps),
        group_size=min(len(steps), size),
    )
    return prepared
