"""scaled_dot_product_attention, with what torch's own lacks: window, softcap, ALiBi and sinks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from anymetal.ops.attention import cases
from anymetal.ops.attention.arguments import NAME, Call, check, like_query
from anymetal.ops.attention.launch import (
    Gradients,
    attend,
    blank_gradients,
    differentiate,
)
from anymetal.ops.declare.checks import check_like, check_shape, check_size
from anymetal.ops.declare.declare import Operator

Tensor = torch.Tensor
Optional = torch.Tensor | None

_EXTRAS = (
    "int? window=None, float? softcap=None, Tensor? alibi_slopes=None, Tensor? sinks=None,"
    " int offset=0"
)

attention_operator = Operator(
    f"{NAME}(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0,"
    f" bool is_causal=False, float? scale=None, bool enable_gqa=False, {_EXTRAS})"
    " -> (Tensor, Tensor)",
    "attention/forward.metal",
    cases.reference,
    cases=cases.CASES,
    bench=cases.BENCH,
    baseline=cases.baseline,
    naive=cases.reference,
    cost=cases.cost,
)
attention_backward = Operator(
    f"{NAME}_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor output,"
    " Tensor logsumexp, Tensor? attn_mask=None, bool is_causal=False, float? scale=None,"
    f" {_EXTRAS}, bool mask_gradient=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    "attention/backward.metal",
    cases.reference_backward,
    cases=cases.BACKWARD_CASES,
    cost=cases.backward_cost,
    differentiable=False,
)


@attention_operator.forward
def _(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    call = Call(*args, **kwargs)
    check(NAME, call)
    return attend(attention_operator, call)


@attention_operator.fake
def _(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    call = Call(*args, **kwargs)
    check(NAME, call)
    return like_query(call), call.query.new_empty(call.query.shape[:-1], dtype=torch.float32)


@attention_backward.forward
def _(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    grad, call, mask_gradient, output, logarithms = cases.backward_call(*args, **kwargs)
    _check_gradient(call, grad, output, logarithms)
    found = differentiate(attention_backward, call, grad, output, logarithms, mask_gradient)
    return tuple(getattr(found, field.name) for field in fields(Gradients))


@attention_backward.fake
def _(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    _, call, mask_gradient, _, _ = cases.backward_call(*args, **kwargs)
    more = [call.attn_mask if mask_gradient else None, call.alibi_slopes, call.sinks]
    rest = [call.query.new_empty(0) if t is None else t.new_empty(t.shape) for t in more]
    return (*blank_gradients(call), *rest)


def _check_gradient(call: Call, grad: Tensor, output: Tensor, logarithms: Tensor) -> None:
    name = attention_backward.name
    check_size(name, "grad", grad)
    check(name, call)
    shape = [*call.query.shape[:-1], call.value_width]
    for argument, tensor in (("grad", grad), ("output", output)):
        check_like(name, argument, tensor, "query", call.query)
        check_shape(name, argument, tensor, shape, "that of the result")
    check_like(name, "logsumexp", logarithms, "query", call.query.new_empty(0, dtype=torch.float32))
    check_shape(name, "logsumexp", logarithms, shape[:-1], "a number a query")


# --- gradient -------------------------------------------------------------------------------------


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    call = Call(*inputs)
    ctx.save_for_backward(
        call.query, call.key, call.value, *output, call.attn_mask, call.alibi_slopes, call.sinks
    )
    ctx.mark_non_differentiable(output[1])
    ctx.mask_gradient = call.attn_mask is not None and call.attn_mask.requires_grad
    ctx.numbers = {
        name: getattr(call, name) for name in ("is_causal", "scale", "window", "softcap", "offset")
    }


def _gradient(ctx: Any, grad: Tensor, _: Any) -> tuple[Optional, ...]:
    *tensors, mask, slopes, sinks = ctx.saved_tensors
    query, key, value, *small = attention_backward(
        grad, *tensors, mask, **ctx.numbers, alibi_slopes=slopes, sinks=sinks,
        mask_gradient=ctx.mask_gradient,
    )  # fmt: skip
    given = (mask if ctx.mask_gradient else None, slopes, sinks)
    of_mask, of_slopes, of_sinks = (
        None if tensor is None else found for tensor, found in zip(given, small, strict=True)
    )
    by_name = {
        "query": query,
        "key": key,
        "value": value,
        "attn_mask": of_mask,
        "alibi_slopes": of_slopes,
        "sinks": of_sinks,
    }
    return tuple(by_name.get(field.name) for field in fields(Call))


attention_operator.gradient(_setup, _gradient)
attention_backward.without_gradient("attention can be differentiated once")


# --- public function ------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Optional = None,
    sinks: Optional = None,
    offset: int = 0,
) -> Tensor:
    """softmax(query @ key^T * scale) @ value, as torch's own; tensors are [..., heads, L, E].

    `attn_mask` says which keys are seen (bool) or is added to the scores, also beside `is_causal`.
    Beyond torch: query i has position `offset + i` among the keys, which matters to what follows
    and to `is_causal`. `window` is how many keys a query sees at most before its position, its own
    included, and after it where nothing is causal. `softcap` limits scores by c * tanh(score / c),
    before anything is added. `alibi_slopes` ([heads], or with batch dimensions) times the distance
    is taken from the scores. `sinks` ([heads]) are scores of a key without a value. There is no
    dropout: `dropout_p` must be 0.
    """
    query, key, value, shared = _broadcast(query, key, value, enable_gqa)
    result: Tensor = attention_operator(
        query, key, value, attn_mask, dropout_p, is_causal, scale, shared, window, softcap,
        alibi_slopes, sinks, offset,
    )[0]  # fmt: skip
    return result


def _broadcast(
    query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Tensors with the same batch dimensions and as many heads of keys as of values.

    A single head of keys is shared rather than repeated, as with `enable_gqa`.
    """
    tensors = (query, key, value)
    if any(not isinstance(t, Tensor) or t.dim() < 2 for t in tensors):
        return query, key, value, enable_gqa  # the operator says what is wrong
    rank = max(t.dim() for t in tensors)
    if rank == 2:
        return query, key, value, enable_gqa
    query, key, value = (t[(None,) * (rank - t.dim())] for t in tensors)
    if query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return query, key, value, enable_gqa
    batch = _common_batch(query, key, value)
    heads = query.shape[-3]
    if heads == 1 and not enable_gqa:
        heads = max(key.shape[-3], value.shape[-3])
    if key.shape[-3] != value.shape[-3]:
        key, value = (_repeated(t, heads, enable_gqa) for t in (key, value))
    shared = enable_gqa or key.shape[-3] == 1
    query = query.expand(*batch, heads, -1, -1)
    return query, key.expand(*batch, -1, -1, -1), value.expand(*batch, -1, -1, -1), shared


def _common_batch(*tensors: Tensor) -> torch.Size:
    shapes = [t.shape[:-3] for t in tensors]
    try:
        return torch.Size(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise ValueError(
            f"{NAME}: arguments 'query', 'key' and 'value' expect batch dimensions that can be"
            f" broadcast, got {', '.join(str(list(shape)) for shape in shapes)}"
        ) from None


def _repeated(tensor: Tensor, heads: int, enable_gqa: bool) -> Tensor:
    """Keys or values for every head of the query, where the two have different numbers of them."""
    own = tensor.shape[-3]
    if own and heads % own == 0 and (enable_gqa or own == 1):
        return tensor.repeat_interleave(heads // own, -3)
    return tensor
