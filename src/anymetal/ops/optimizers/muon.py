"""muon_momentum_ and muon_step_: the two ends of a step of Muon, over lists of matrices."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.ops.declare import Arguments, Case, Cost, on_call, operator
from anymetal.ops.declare.checks import check_dtype
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.optimizers.cases import float32_or_more, lists_case
from anymetal.ops.optimizers.scaling import scaling
from anymetal.ops.optimizers.tables import (
    Written,
    check_lists,
    check_scalars,
    check_states,
    entries,
    rounding,
    run_tables,
)

Tensor = torch.Tensor
_NO_GRADIENT = "a step of an optimizer has none. Call it under torch.no_grad()"


def _case(shapes: list[tuple[int, ...]], short: int, **keywords: Any) -> Case:
    """Updates, the list at place `short`, are bfloat16 whatever the parameters are."""
    lists = lists_case(shapes, **keywords)

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        args, named = lists.make(dtype, device, generator)
        args[short] = [tensor.bfloat16() for tensor in args[short]]
        return args, named

    return Case(lists.name, make)


# --- momentum -------------------------------------------------------------------------------------


@on_call
def _momentum_reference(call: Arguments) -> None:
    for update, grad, state in zip(call.updates, call.grads, call.states, strict=True):
        given = float32_or_more(grad).flatten()
        state[0].lerp_(given, 1 - call.momentum)
        result = given.lerp(state[0], call.momentum) if call.nesterov else state[0]
        update.copy_(result.view(update.shape))


def _momentum_cost(updates: list[Tensor], grads: list[Tensor], *_: Any, **__: Any) -> Cost:
    count = sum(update.numel() for update in updates)
    read = sum(grad.nbytes for grad in grads) + 4 * count
    return Cost(read=read, write=6 * count, flops=6 * count)


@operator(
    source="muon.metal",
    reference=_momentum_reference,
    cases=[
        _case([(5, 1), (0, 3), (33, 7)], 0, rows=1),
        _case([(31, 2)], 0, rows=1, nesterov=False),
        _case([(16, 17)] * 11, 0, rows=2, momentum=0.8),
    ],
    bench=[_case([(1024, 1024)] * 4, 0, rows=1)],
    cost=_momentum_cost,
    mutates=["updates", "states"],
    in_part=True,  # rows of the states that the other of the two has
    no_gradient=_NO_GRADIENT,
)
def muon_momentum_(
    updates: list[Tensor],
    grads: list[Tensor],
    states: list[Tensor],
    momentum: float = 0.95,
    nesterov: bool = True,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Updates the first row of the states by gradients, and writes what Muon makes orthogonal.

    `updates` are bfloat16 and `states` as those of `muon_step_`.
    """
    name = "muon_momentum_"
    check_lists(name, updates=updates, grads=grads)
    if updates:
        check_dtype(name, "updates[0]", updates[0], [torch.bfloat16])
    check_states(name, states, updates, states[0].shape[0] if states else 1)
    of = updates[0] if updates else None
    check_scalars(name, of, grad_scale=grad_scale, found_inf=found_inf)


@muon_momentum_.run
@on_call
def _(call: Arguments) -> None:
    written = Written()
    found = entries(written, call.updates, call.grads, call.states)
    if not found:
        return
    buffers, scaled = scaling(found, 0.0, None, call.grad_scale, call.found_inf)
    run_tables(
        muon_momentum_,
        f"muon_momentum_{SUFFIXES[call.grads[0].dtype]}",
        found,
        *buffers,
        scaling=scaled,
        rest=1 - call.momentum,
        nesterov=int(call.nesterov),
    )
    written.finish()


# --- step -----------------------------------------------------------------------------------------


@on_call
def _step_reference(call: Arguments) -> None:
    for i, (param, update) in enumerate(zip(call.params, call.updates, strict=True)):
        value = (
            call.states[i][-1].clone() if call.master_weights else float32_or_more(param).flatten()
        )
        value = value * (1 - call.lr * call.weight_decay)
        value = value - call.lr * call.factors[i] * float32_or_more(update).flatten()
        if call.master_weights:
            call.states[i][-1].copy_(value)
        param.copy_(value.view(param.shape))


@on_call
def _step_cost(call: Arguments) -> Cost:
    count = sum(param.numel() for param in call.params)
    written = sum(param.nbytes for param in call.params) + 4 * count * call.master_weights
    read = 2 * count + (4 * count if call.master_weights else written)
    return Cost(read=read, write=written, flops=4 * count)


@operator(
    source="muon.metal",
    reference=_step_reference,
    cases=[
        _case([(5, 1), (0, 3), (33, 7)], 1, lr=0.1, rows=1, factors=[1.0, 0.5, 2.0]),
        _case([(31, 2)], 1, lr=0.1, rows=1, factors=[1.5], weight_decay=0.1),
        _case([(16, 17)] * 11, 1, lr=0.1, rows=2, factors=[1.0] * 11, master_weights=True),
    ],
    bench=[_case([(1024, 1024)] * 4, 1, lr=0.1, rows=1, factors=[1.0] * 4)],
    cost=_step_cost,
    mutates=["params", "states"],
    in_part=True,  # rows of the states that the other of the two has
    no_gradient=_NO_GRADIENT,
)
def muon_step_(
    params: list[Tensor],
    updates: list[Tensor],
    states: list[Tensor],
    factors: list[float],
    lr: float,
    weight_decay: float = 0.0,
    master_weights: bool = False,
    rounding_seed: int | None = None,
    call: int = 0,
    lr_tensor: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Subtracts `lr * factors[i] * updates[i]` from each parameter, after decoupled weight decay.

    `updates` are bfloat16. `states[i]` are rows of float32, an element for each of `params[i]`:
    momentum, then with `master_weights` the parameter itself. The other arguments are those of
    `adam_step_`.
    """
    name = "muon_step_"
    check_lists(name, params=params, updates=updates)
    if updates:
        check_dtype(name, "updates[0]", updates[0], [torch.bfloat16])
    check_states(name, states, params, 1 + master_weights)
    if len(factors) != len(params):
        raise ValueError(
            f"{name}: argument 'factors' has {len(factors)} numbers, 'params' {len(params)} tensors"
        )
    of = params[0] if params else None
    check_scalars(name, of, lr_tensor=lr_tensor, found_inf=found_inf)


@muon_step_.run
@on_call
def _(call: Arguments) -> None:
    written = Written()
    found = entries(written, call.params, call.updates, call.states)
    if not found:
        return
    buffers, scaled = scaling(found, call.lr, call.lr_tensor, None, call.found_inf)
    run_tables(
        muon_step_,
        f"muon_step_{SUFFIXES[call.params[0].dtype]}",
        found,
        *buffers,
        each={"factors": call.factors},
        scaling=scaled,
        weight_decay=call.weight_decay,
        master=int(call.master_weights),
        rounding=rounding(call.rounding_seed, call.call),
    )
    written.finish()
