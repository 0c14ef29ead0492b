"""Attention of transformers through its AttentionInterface, where ours is called "anymetal".

Two functions are registered under that name: the mask, which is left out wherever positions alone
say which keys are seen, and the attention itself. Padding, packed sequences, static caches and any
other mask come as a tensor, of bools or of numbers to add.
"""

from __future__ import annotations

import inspect
import math
import threading
import weakref
from typing import Any

import torch
from torch import nn

from anymetal import ops
from anymetal.ops.attention.arguments import MOST_WIDTH
from anymetal.patch.handle import Handle, Row
from anymetal.patch.layers import takes

NAME = "anymetal"
INTERFACE = "ALL_ATTENTION_FUNCTIONS"

Tensor = torch.Tensor
Optional = torch.Tensor | None


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Optional = None,
    **more: Any,
) -> tuple[Tensor, Optional]:
    """What transformers calls: [batch, heads, sequence, elements] in, heads after sequence out.

    Weights come back where `output_attentions` asks for them, which takes torch's operators, as
    does dropout, a bias of positions, a paged cache, and a head wider than the kernels take.
    """
    mask = None if attention_mask is None else attention_mask[..., : key.shape[-2]]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    # Without a mask, one query is the last of its sequence, and several stand at its beginning.
    causal = bool(causal) and mask is None and query.shape[-2] > 1
    window = sliding_window if causal else None
    plain = takes(query, key, value) and not dropout and not more.get("output_attentions")
    known = more.get("position_bias") is None and more.get("cache") is None
    narrow = max(query.shape[-1], value.shape[-1]) <= MOST_WIDTH
    if not known:
        more |= {"softcap": softcap, "s_aux": s_aux}  # which it refuses where they are given
        return _of_torch(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, more
        )
    if not (plain and narrow):
        return _composed(
            module, query, key, value, mask, dropout, scaling, causal, window, softcap, s_aux
        )
    result = ops.scaled_dot_product_attention(
        query, key, value, _taken(mask, query), is_causal=causal, scale=scaling, enable_gqa=True,
        window=window, softcap=softcap, sinks=s_aux,
    )  # fmt: skip
    return result.transpose(1, 2).contiguous(), None


def _taken(mask: Optional, query: Tensor) -> Optional:
    """A mask in a dtype that the operator takes."""
    if mask is None or mask.dtype in (torch.bool, torch.float32, query.dtype):
        return mask
    return mask.to(query.dtype)


def _of_torch(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional,
    dropout: float,
    scaling: float | None,
    is_causal: bool | None,
    more: dict[str, Any],
) -> tuple[Tensor, Optional]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415

    found: tuple[Tensor, Optional] = sdpa_attention_forward(
        module, query, key, value, mask, dropout, scaling, is_causal, **more
    )
    return found


def _composed(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional,
    dropout: float,
    scaling: float | None,
    causal: bool,
    window: int | None,
    softcap: float | None,
    sinks: Optional,
) -> tuple[Tensor, Optional]:
    """The same with torch's operators one by one, which has the weights to give back."""
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (key, value))
    scale = scaling if scaling is not None else 1 / math.sqrt(query.shape[-1])
    scores = query @ key.transpose(-2, -1) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if causal:
        mask = _positions(query.shape[-2], key.shape[-2], window, query.device)
    if mask is not None:
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, lowest) if mask.dtype is torch.bool else scores + mask
    if sinks is not None:
        column = sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], -1)
    weights = torch.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights[..., : key.shape[-2]].to(query.dtype)
    weights = nn.functional.dropout(weights, dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def _positions(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor:
    """Which query sees which key, both counted from the beginning."""
    before = torch.arange(queries, device=device)[:, None] - torch.arange(keys, device=device)
    return (before >= 0) & (before < (window or keys + queries))


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Optional = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    device: torch.device | str = "cpu",
    config: Any = None,
    **more: Any,
) -> Optional:
    """transformers' mask of bools; None also for a window from the beginning of a sequence."""
    from transformers.masking_utils import sdpa_mask  # noqa: PLC0415

    # A graph is traced for any mask, so that its values are not looked at there.
    if (
        not torch.compiler.is_compiling()
        and allow_is_causal_skip
        and local_size is not None
        and _windowed.get(id(config)) is config
        and isinstance(q_offset, int)
        and q_offset == kv_offset == 0
        and q_length == kv_length > 1
        and (attention_mask is None or bool(attention_mask.all()))
        and _slides(mask_function, local_size, device)
    ):
        return None
    found: Optional = sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
        local_size=local_size, allow_is_causal_skip=allow_is_causal_skip, device=device, **more,
    )  # fmt: skip
    return found


def _slides(mask_function: Any, size: int, device: torch.device | str) -> bool:
    """Whether this is a causal window of `size` keys: chunks have a size too, and see others."""
    zero = torch.zeros((), dtype=torch.long, device=device)
    seen = [
        bool(mask_function(zero, zero, zero + query, zero + key))
        for query, key in ((size, 0), (size, 1), (size, size), (size, size + 1), (2 * size, 2))
    ]
    return seen == [False, True, True, False, size < 2]


# --- registering ----------------------------------------------------------------------------------

_WHY = 'ops.scaled_dot_product_attention as "anymetal"'
_IN_CONFIG = "_attn_implementation_internal"
# Configurations, by their addresses, whose attentions all hand their window over.
_windowed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class _Registration:
    """Our two functions in transformers' registries, as long as a patched model needs them."""

    def __init__(self) -> None:
        self.users = 0
        self.lock = threading.Lock()

    def acquire(self) -> None:
        with self.lock:
            self.users += 1
            for registry, ours in self.registries():
                registry.setdefault(NAME, ours)

    def release(self) -> None:
        with self.lock:
            self.users -= 1
            for registry, ours in self.registries():
                if not self.users and registry.get(NAME) is ours:
                    del registry[NAME]

    @staticmethod
    def registries() -> list[tuple[dict[str, Any], Any]]:
        from transformers.masking_utils import AttentionMaskInterface  # noqa: PLC0415
        from transformers.modeling_utils import AttentionInterface  # noqa: PLC0415

        return [
            (AttentionInterface._global_mapping, attention),
            (AttentionMaskInterface._global_mapping, mask),
        ]


_registration = _Registration()


def patch_attention(handle: Handle, model: nn.Module) -> None:
    """Every configuration whose attentions go through the interface names ours."""
    through = [(name, m) for name, m in model.named_modules() if _uses_interface(type(m))]
    configs = {id(m.config): m.config for _, m in through if hasattr(m, "config")}
    changed = set()
    for address, config in configs.items():
        held = getattr(config, "_attn_implementation", None)
        if held in (None, NAME):
            continue
        changed.add(address)
        handle.set(f"the attention of {type(config).__name__}", vars(config), _IN_CONFIG, NAME)
        if all(_hands_window(type(m)) for _, m in through if m.config is config):
            _windowed[address] = config
    for name, module in through:
        kind, address = type(module).__name__, id(getattr(module, "config", None))
        if address in changed:
            handle.rows.append(Row(name, kind, True, _WHY))
        else:
            known = getattr(configs.get(address), "_attn_implementation", None)
            handle.left(name, kind, "patched already" if known else "its config names no attention")
    if changed:
        _registration.acquire()
        handle.afterwards(_registration.release)


def _uses_interface(of: type) -> bool:
    """Whether the forward of a class asks transformers' registry for its attention."""
    code = getattr(inspect.unwrap(of.forward), "__code__", None)  # type: ignore[attr-defined]
    return code is not None and INTERFACE in code.co_names


def _hands_window(of: type) -> bool:
    """Whether a forward names `sliding_window` in a call."""
    code = inspect.unwrap(of.forward).__code__  # type: ignore[attr-defined]
    names = [one for one in code.co_consts if isinstance(one, tuple)]
    return any("sliding_window" in one for one in names)
