"""scaled_dot_product_attention, with what torch's own lacks: window, softcap, ALiBi and sinks."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.ops.attention import cases
from anymetal.ops.attention.arguments import NAME, Call, check, like_query
from anymetal.ops.attention.launch import Gradients, attend, differentiate
from anymetal.ops.declare import Autocast, operator
from anymetal.ops.declare import Call as Differentiated
from anymetal.ops.declare import Gradients as ByName
from anymetal.ops.declare.checks import check_like, check_shape, check_size

Tensor = torch.Tensor
Optional = torch.Tensor | None


@operator(
    source="forward.metal",
    reference=cases.reference,
    cases=cases.CASES,
    bench=cases.BENCH,
    baseline=cases.baseline,
    naive=cases.reference,
    cost=cases.cost,
    results=("output", "logsumexp"),
    detached=("logsumexp",),
    autocast=Autocast("lower", like=NAME),
    again=True,
)
def _scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    call = Call(**locals())
    check(NAME, call)
    return like_query(call), query.new_empty(query.shape[:-1], dtype=torch.float32)


@_scaled_dot_product_attention.run
def _(results: tuple[Tensor, Tensor], *args: Any) -> None:
    attend(_scaled_dot_product_attention, Call(*args), *results)


# --- gradient -------------------------------------------------------------------------------------


@operator(
    source="backward.metal",
    reference=cases.reference_backward,
    cases=cases.BACKWARD_CASES,
    cost=cases.backward_cost,
    no_gradient="attention can be differentiated once",
)
def _scaled_dot_product_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    offset: int = 0,
    mask_gradient: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    _, call, *_ = cases.backward_call(*locals().values())
    _check_gradient(call, grad, output, logsumexp)
    more = [attn_mask if mask_gradient else None, alibi_slopes, sinks]
    of_mask, of_slopes, of_sinks = (
        query.new_empty(0) if t is None else t.new_empty(t.shape) for t in more
    )
    return _dense(query), _dense(key), _dense(value), of_mask, of_slopes, of_sinks


@_scaled_dot_product_attention_backward.run
def _(gradients: tuple[Tensor, ...], *args: Any) -> None:
    grad, call, _, output, logarithms = cases.backward_call(*args)
    operator = _scaled_dot_product_attention_backward
    differentiate(operator, call, grad, output, logarithms, Gradients(*gradients))


def _dense(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _check_gradient(call: Call, grad: Tensor, output: Tensor, logarithms: Tensor) -> None:
    name = f"{NAME}_backward"
    check_size(name, "grad", grad)
    check(name, call)
    shape = [*call.query.shape[:-1], call.value_width]
    for argument, tensor in (("grad", grad), ("output", output)):
        check_like(name, argument, tensor, "query", call.query)
        check_shape(name, argument, tensor, shape, "that of the result")
    check_like(name, "logsumexp", logarithms, "query", call.query.new_empty(0, dtype=torch.float32))
    check_shape(name, "logsumexp", logarithms, shape[:-1], "a number a query")


_TENSORS = ("query", "key", "value", "attn_mask", "alibi_slopes", "sinks")
_NUMBERS = ("is_causal", "scale", "window", "softcap", "offset")


@_scaled_dot_product_attention.backward(keep=[*_TENSORS, "output", "logsumexp"])
def _(call: Differentiated, grad: Tensor, _: Tensor) -> ByName:
    named = {name: getattr(call, name) for name in (*_TENSORS, "output", "logsumexp", *_NUMBERS)}
    found = _scaled_dot_product_attention_backward(
        grad, **named, mask_gradient=call.needs("attn_mask")
    )
    return {n: f for n, f in zip(_TENSORS, found, strict=True) if call.needs(n)}


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
    return _scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, shared, window, softcap,
        alibi_slopes, sinks, offset,
    )[0]  # fmt: skip


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
