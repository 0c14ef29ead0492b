"""Attention written with torch's operators: the reference, torch's own, cases and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from anymetal.ops.attention.arguments import Call
from anymetal.ops.declare import Case, Cost

Tensor = torch.Tensor
Optional = torch.Tensor | None


# --- reference ------------------------------------------------------------------------------------


def reference(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """The result, and the logarithm of the sum of exponents of each query."""
    call = Call(*args, **kwargs)
    shared_by = call.heads // max(call.key_heads, 1)
    key, value = call.key, call.value
    if shared_by > 1:
        key, value = (t.repeat_interleave(shared_by, -3) for t in (key, value))
    scores = shaped(call, call.query @ key.transpose(-2, -1) * call.factor)
    if call.sinks is not None:
        column = call.sinks[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column.to(scores.dtype)), -1)
    weights = torch._safe_softmax(scores, -1)[..., : call.keys]
    return weights.to(value.dtype) @ value, _logarithms(call, scores)


def shaped(call: Call, scores: Tensor) -> Tensor:
    """Products as scores: capped, less the distance, masked."""
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    if call.alibi_slopes is not None:
        scores = scores - call.alibi_slopes[..., None, None] * call.distance().abs()
    if call.attn_mask is not None:
        hides = call.attn_mask.dtype == torch.bool
        scores = (
            scores.masked_fill(~call.attn_mask, -torch.inf) if hides else scores + call.attn_mask
        )
    sees = call.sees()
    return scores if sees is None else scores.masked_fill(~sees, -torch.inf)


def _logarithms(call: Call, scores: Tensor) -> Tensor:
    """They are for the gradient, and have none."""
    exact = scores.dtype == torch.float64
    scores = scores.detach() if exact else scores.detach().float()
    if scores.shape[-1] == 0:
        return scores.new_full(call.query.shape[:-1], -torch.inf)
    return torch.logsumexp(scores, -1)


def reference_backward(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    grad, call, mask_gradient = backward_call(*args, **kwargs)[:3]
    names = ["query", "key", "value", "attn_mask", "alibi_slopes", "sinks"]
    given = {name: getattr(call, name) for name in names}
    wanted = {n: t for n, t in given.items() if t is not None and (n != names[3] or mask_gradient)}
    with torch.enable_grad():
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in wanted.items()}
        output, _ = reference(**vars(replace(call, **leaves)))
        found = torch.autograd.grad(output, list(leaves.values()), grad, allow_unused=True)
    by_name = dict(zip(leaves, found, strict=True))
    return tuple(by_name[n] if n in by_name else grad.new_empty(0) for n in names)


def backward_call(*args: Any, **kwargs: Any) -> tuple[Tensor, Call, bool, Tensor, Tensor]:
    """grad, the call, whether its mask has a gradient, and what the forward pass gave."""
    names = ["grad", "query", "key", "value", "output", "logsumexp", "attn_mask", "is_causal"]
    names += ["scale", "window", "softcap", "alibi_slopes", "sinks", "offset", "mask_gradient"]
    values = dict(zip(names, args, strict=False)) | kwargs
    grad, output, logsumexp = (values.pop(name) for name in ("grad", "output", "logsumexp"))
    mask_gradient = values.pop("mask_gradient", False)
    return grad, Call(**values, enable_gqa=True), mask_gradient, output, logsumexp


def baseline(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """torch's own kernel, which gives the logarithms too; the reference where it has none."""
    call = Call(*args, **kwargs)
    more = (call.window, call.softcap, call.alibi_slopes, call.sinks)
    plain = all(option is None for option in more) and not call.offset
    fits = call.query.dim() == 4 and call.width == call.value_width and call.query.is_cpu
    mask, filled = call.attn_mask, call.query.numel() and call.key.numel()
    differentiated = mask is not None and mask.requires_grad
    if not (plain and fits and filled) or differentiated or call.query.dtype == torch.float64:
        return reference(*args, **kwargs)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=call.query.dtype).masked_fill(~mask, -torch.inf)
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
    output, logarithms = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        call.query, call.key, call.value, 0.0, call.is_causal, attn_mask=mask, scale=call.scale
    )
    return output, logarithms.detach()


# --- cost -----------------------------------------------------------------------------------------


def cost(*args: Any, **kwargs: Any) -> Cost:
    call = Call(*args, **kwargs)
    result = call.query.numel() // max(call.width, 1) * call.value_width
    read = call.query.nbytes + call.key.nbytes + call.value.nbytes + _bytes(call.attn_mask)
    written = result * call.query.element_size() + 4 * call.query.numel() // max(call.width, 1)
    return Cost(read=read, write=written, flops=2 * _scores(call) * (call.width + call.value_width))


def backward_cost(*args: Any, **kwargs: Any) -> Cost:
    grad, call, mask_gradient, output, logsumexp = backward_call(*args, **kwargs)
    each = call.query.nbytes + call.key.nbytes + call.value.nbytes
    mask = _bytes(call.attn_mask)
    read = each + grad.nbytes + output.nbytes + logsumexp.nbytes + mask
    # The scores again, then a product for each of the four gradients.
    flops = 2 * _scores(call) * (3 * call.width + 2 * call.value_width)
    return Cost(read=read, write=each + (mask if mask_gradient else 0), flops=flops)


def _scores(call: Call) -> int:
    """How many pairs of a query and a key see each other."""
    seen = 0
    for query in range(call.queries):
        position = query + call.offset
        last = min(call.keys - 1, position + call.after)
        seen += max(0, last - max(0, position - call.before) + 1)
    return call.samples * call.heads * seen


def _bytes(tensor: Optional) -> int:
    return 0 if tensor is None else tensor.nbytes


# --- cases ----------------------------------------------------------------------------------------


def case(
    shape: Sequence[int],
    keys: int,
    *,
    key_heads: int | None = None,
    value_width: int | None = None,
    mask: str | None = None,
    slopes: bool = False,
    sinks: bool = False,
    transposed: bool = False,
    **options: Any,
) -> Case:
    """Random tensors: `shape` is that of the query, `mask` "bool" or "float"."""
    *batch, heads, queries, width = shape
    key_shape = (*batch, key_heads or heads, keys)

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(*size: int) -> Tensor:
            return torch.randn(size, generator=generator)

        query = random(*shape)
        key, value = random(*key_shape, width), random(*key_shape, value_width or width)
        tensors = [t.to(dtype).to(device) for t in (query, key, value)]
        if transposed:
            tensors = [t.transpose(-2, -3).contiguous().transpose(-2, -3) for t in tensors]
        more = dict(options) | ({"enable_gqa": True} if key_heads else {})
        if mask is not None:
            scores = random(heads, queries, keys)
            found = scores > -0.5 if mask == "bool" else scores.to(dtype)
            more["attn_mask"] = found.to(device)
        if slopes:
            more["alibi_slopes"] = 2.0 ** -torch.arange(1.0, heads + 1).to(device)
        if sinks:
            more["sinks"] = random(heads).to(dtype).to(device)
        return tensors, more

    words = ["x".join(map(str, shape)), f"over {keys} keys"]
    words += [f"{key_heads} key heads"] if key_heads else []
    words += [f"values of {value_width}"] if value_width else []
    words += [f"{mask} mask"] if mask else []
    words += [word for word, there in (("slopes", slopes), ("sinks", sinks)) if there]
    words += ["transposed"] if transposed else []
    words += [f"{name}={value}" for name, value in options.items()]
    return Case(" ".join(words), make)


def backward_case(*args: Any, mask_gradient: bool = False, **kwargs: Any) -> Case:
    """The same for the gradient: what the forward pass gives comes from the reference."""
    forward = case(*args, **kwargs)

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        tensors, options = forward.make(dtype, torch.device("cpu"), generator)
        output, logarithms = reference(
            *(t.double() for t in tensors),
            **{n: t.double() if _is_float(t) else t for n, t in options.items()},
        )
        grad = torch.randn(output.shape, generator=generator)
        options.pop("enable_gqa", None)
        given = [grad.to(dtype), *tensors, output.to(dtype), logarithms.float()]
        more = {n: t.to(device) if isinstance(t, Tensor) else t for n, t in options.items()}
        if mask_gradient:
            more["mask_gradient"] = True
        return [t.to(device) for t in given], more

    return Case(forward.name, make)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


# Few instances of the kernels: each is compiled for every dtype.
_ALL: dict[str, Any] = {"key_heads": 2, "slopes": True, "sinks": True, "softcap": 5.0, "window": 20}

CASES = (
    case((1, 2, 0, 8), 5),
    case((3, 31, 20), 33, is_causal=True),
    case((1, 33, 31), 31, value_width=17),
    case((2, 4, 1, 32), 130, key_heads=2, mask="bool"),
    case((1, 4, 40, 32), 37, is_causal=True, mask="float", transposed=True, **_ALL),
)

BACKWARD_CASES = (
    backward_case((1, 2, 0, 8), 5),
    backward_case((2, 2, 33, 20), 37, is_causal=True),
    backward_case((1, 4, 9, 32), 33, mask="float", mask_gradient=True, **_ALL),
)

# A token over contexts of three lengths, then prompts: a short, a long, and the next part of one.
BENCH = (
    case((1, 4, 1, 64), 128),
    case((1, 32, 1, 128), 2048, key_heads=8),
    case((1, 8, 1, 64), 8192),
    case((1, 4, 128, 64), 128, is_causal=True),
    case((1, 8, 1024, 64), 1024),
    case((1, 32, 32, 64), 512, key_heads=8, is_causal=True, offset=480),
)
