"""Attention over a paged cache with torch's operators, and calls of it for tests and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from anymetal.ops.declare import Case
from anymetal.ops.paged.formats import FP8, decoded

Tensor = torch.Tensor


def with_torch(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    scale: float | None = None,
    kv_cache_dtype: str = "auto",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    max_context_len: int | None = None,
    **options: Any,
) -> Tensor:
    """A sequence at a time: its keys and values side by side, then the formula as it stands."""
    del max_context_len
    kind = torch.promote_types(query.dtype, torch.float32)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    output = torch.zeros(query.shape, dtype=query.dtype, device=query.device)
    tokens, results = query.flatten(0, -3), output.view(-1, *query.shape[-2:])
    first = 0
    for sequence, count in enumerate(_counts(query, cu_seqlens_q)):
        here = slice(first, first + count)
        length = int(context_lens[sequence])
        keys, values = (
            _gathered(cache, block_tables[sequence], length, kv_cache_dtype, kind, by)
            for cache, by in ((key_cache, k_scale), (value_cache, v_scale))
        )
        q = tokens[here].to(kind).transpose(0, 1)
        results[here] = _attend(q, keys, values, scale, **options).transpose(0, 1).to(query.dtype)
        first += count
    return output


def _counts(query: Tensor, cu_seqlens_q: Tensor | None) -> list[int]:
    if cu_seqlens_q is not None:
        return [int(n) for n in cu_seqlens_q.diff()]
    return [query.shape[1] if query.dim() == 4 else 1] * query.shape[0]


def _gathered(
    cache: Tensor,
    table: Tensor,
    length: int,
    kv_cache_dtype: str,
    kind: torch.dtype,
    scale: Tensor | None,
) -> Tensor:
    """The rows of one sequence: [kv_heads, length, head_size]."""
    block_size = cache.shape[1]
    blocks = table[: -(-length // block_size)].long()
    rows = cache.view(torch.uint8) if cache.dtype in FP8.values() else cache
    rows = rows[blocks].flatten(0, 1)[:length]
    named = {dtype: name for name, dtype in FP8.items()}.get(cache.dtype, kv_cache_dtype)
    values = decoded(rows, named, kind)
    if scale is not None:
        values = values * scale.to(kind).reshape(-1, 1)
    return values.transpose(0, 1)


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    is_causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """[heads, queries, size] over [kv_heads, length, size]."""
    group = query.shape[0] // keys.shape[0]
    keys, values = (t.repeat_interleave(group, 0) for t in (keys, values))
    scores = query @ keys.transpose(1, 2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    back = _distance(query.shape[1], keys.shape[1], query.device)
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.to(scores.dtype)[:, None, None] * back.abs()
    scores = scores.masked_fill(_hidden(back, is_causal, window), -math.inf)
    if sinks is not None:
        column = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:2], 1)
        scores = torch.cat((scores, column), -1)
    largest = scores.amax(-1, keepdim=True) if scores.shape[-1] else scores.new_zeros(1)
    weights = torch.exp(scores - largest.masked_fill(largest == -math.inf, 0))
    total = weights.sum(-1, keepdim=True)
    weights = weights[..., : keys.shape[1]] / total.masked_fill(total == 0, 1)
    return weights @ values


def _distance(queries: int, keys: int, device: torch.device) -> Tensor:
    """How far a key lies before a query, the queries being the last tokens."""
    positions = torch.arange(keys - queries, keys, device=device)
    return positions[:, None] - torch.arange(keys, device=device)


def _hidden(back: Tensor, is_causal: bool, window: int | None) -> Tensor:
    hidden = back < 0 if is_causal else torch.zeros_like(back, dtype=torch.bool)
    return hidden if window is None else hidden | (back.abs() >= window)


def with_torch_attention(*args: Any, **options: Any) -> Tensor:
    """What people do without a kernel: gather the blocks, and let torch's attention mask them.

    It knows neither a cap nor sinks, and its masks are of the query's dtype: calls with those or
    with slopes, and ragged ones, are left to the formula.
    """
    query, key_cache, value_cache, tables, lengths = args[:5]
    plain = not any(options.get(name) is not None for name in ("alibi_slopes", "sinks"))
    ragged = len(args) > 5 or options.get("cu_seqlens_q") is not None
    if ragged or not plain or options.get("softcap") or not query.numel() or not len(lengths):
        return with_torch(*args, **options)
    queries = query if query.dim() == 4 else query[:, None]
    longest = int(lengths.max())
    keys, values = (
        _padded(cache, tables, longest, options.get(name), options, query.dtype)
        for cache, name in ((key_cache, "k_scale"), (value_cache, "v_scale"))
    )
    count = queries.shape[1]
    at = lengths[:, None] - count + torch.arange(count, device=query.device)
    back = at[:, :, None] - torch.arange(longest, device=query.device)
    hidden = _hidden(back, options.get("is_causal", True), options.get("window"))
    hidden |= torch.arange(longest, device=query.device) >= lengths[:, None, None]
    result = torch.nn.functional.scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys,
        values,
        attn_mask=~hidden[:, None],
        scale=options.get("scale"),
        enable_gqa=queries.shape[2] != keys.shape[1],
    )
    return result.transpose(1, 2).reshape(query.shape)


def _padded(
    cache: Tensor,
    tables: Tensor,
    longest: int,
    scale: Tensor | None,
    options: dict[str, Any],
    dtype: torch.dtype,
) -> Tensor:
    """The rows of all sequences: [batch, kv_heads, longest, head_size]."""
    columns = -(-longest // cache.shape[1])
    blocks = tables[:, :columns].long().clamp(0, max(cache.shape[0] - 1, 0))
    rows = decoded(cache[blocks], options.get("kv_cache_dtype", "auto"), dtype)
    if scale is not None:
        rows = rows * scale.to(dtype).reshape(-1, 1)
    # Blocks past a sequence's end may hold anything, and a weight of 0 does not hide a NaN.
    return rows.flatten(1, 2)[:, :longest].transpose(1, 2).nan_to_num()


# --- calls ----------------------------------------------------------------------------------------


def paged_case(
    lengths: Sequence[int],
    heads: int,
    kv_heads: int,
    size: int,
    block_size: int = 16,
    counts: int | Sequence[int] = 1,
    *,
    slopes: bool = False,
    sinks: bool = False,
    scales: bool = False,
    **options: Any,
) -> Case:
    """Sequences of these lengths in blocks that are in no order; `counts` are their queries."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        tables, blocks = _tables(lengths, block_size, generator)
        shape = (blocks, block_size, kv_heads, size)
        fp8 = FP8.get(options.get("kv_cache_dtype", "auto"))
        # The spare blocks are read by nobody: NaN there would show.
        caches = [random(*shape) for _ in range(2)]
        unused = [i for i in range(blocks) if i not in set(tables.flatten().tolist())]
        for cache in caches:
            cache[unused] = math.nan
        stored = [c.to(dtype) if fp8 is None else c.to(fp8).view(torch.uint8) for c in caches]
        args = [random(*_query_shape(lengths, heads, size, counts)).to(dtype), *stored]
        args += [tables, torch.tensor(list(lengths), dtype=torch.int32)]
        named: dict[str, Any] = dict(options)
        if not isinstance(counts, int):
            starts = torch.tensor([0, *counts]).cumsum(0, dtype=torch.int32)
            named["cu_seqlens_q"] = starts.to(device)
        if slopes:
            named["alibi_slopes"] = torch.rand(heads, generator=generator).to(device)
        if sinks:
            named["sinks"] = random(heads).to(device)
        if scales:
            named["k_scale"] = (0.5 + torch.rand(kv_heads, generator=generator)).to(device)
            named["v_scale"] = torch.tensor([0.25]).to(device)
        return [arg.to(device) for arg in args], named

    words = [f"keys {_short(lengths)}", f"heads {heads}/{kv_heads}x{size}"]
    words += [f"blocks of {block_size}", f"queries {counts}"]
    flags = {"slopes": slopes, "sinks": sinks, "scales": scales}
    words += [word for word, is_on in flags.items() if is_on]
    return Case(", ".join(words + [f"{name}={value}" for name, value in options.items()]), make)


def _short(lengths: Sequence[int]) -> str:
    if len(lengths) > 1 and len(set(lengths)) == 1:
        return f"{len(lengths)}x{lengths[0]}"
    return "+".join(map(str, lengths)) or "of nobody"


def _query_shape(
    lengths: Sequence[int], heads: int, size: int, counts: int | Sequence[int]
) -> tuple[int, ...]:
    if not isinstance(counts, int):
        return sum(counts), heads, size
    return (len(lengths), heads, size) if counts == 1 else (len(lengths), counts, heads, size)


def _tables(
    lengths: Sequence[int], block_size: int, generator: torch.Generator
) -> tuple[Tensor, int]:
    """Tables of blocks in random order, -1 where a sequence has ended; and the number of blocks."""
    needed = [-(-length // block_size) for length in lengths]
    blocks = sum(needed) + 2
    order = iter(torch.randperm(blocks, generator=generator).tolist())
    width = max(needed, default=0)
    rows = [[next(order) for _ in range(n)] + [-1] * (width - n) for n in needed]
    return torch.tensor(rows, dtype=torch.int32).reshape(len(lengths), width), blocks


CASES = (
    paged_case((), 4, 2, 16),
    paged_case((1,), 1, 1, 8, 1),
    paged_case((0, 5, 33), 4, 2, 24),
    paged_case((31, 32, 70), 4, 4, 32, 5),
    paged_case((9, 130), 6, 2, 64, 16, 3, window=37, softcap=5.0),
    paged_case((40, 3, 71), 4, 1, 80, 8, (5, 0, 7), slopes=True, sinks=True),
    paged_case((67, 20), 8, 2, 33, 16, kv_cache_dtype="fp8_e4m3", scales=True),
    paged_case((45,), 2, 2, 64, 16, (6,), kv_cache_dtype="fp8_e5m2", is_causal=False, window=29),
    paged_case((700,), 3, 1, 64, 16, scale=0.3, sinks=True),
)
BENCH = (
    paged_case((128,) * 8, 32, 8, 128),
    paged_case((1024,) * 8, 32, 8, 128),
    paged_case((8192,), 32, 8, 128),
    paged_case((4096, 17, 900, 2048), 8, 8, 64),
    paged_case((4096,), 32, 8, 128, kv_cache_dtype="fp8_e4m3"),
    paged_case((512, 2048), 8, 2, 64, 16, 16),
)
