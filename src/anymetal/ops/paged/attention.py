"""Attention over a paged cache: keys and values lie in blocks, and a table says which.

The caches have the shape [blocks, block_size, kv_heads, head_size], so that a view of them in any
order of the first three dimensions does too. Queries are one a sequence (decoding), the same number
for each, or a ragged batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.ops.declare import FLOATS, Arguments, Cost, on_call, operator, variants
from anymetal.ops.declare.checks import MAX_ELEMENTS, check_dtype, check_shape, check_size
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import aligned
from anymetal.ops.declare.pieces import piece_of
from anymetal.ops.paged.formats import (
    Scale,
    as_scale,
    cache_format,
    check_caches,
    check_scale,
    check_span,
    scales_for,
    stored,
)
from anymetal.ops.paged.reference import BENCH, CASES, with_torch, with_torch_attention
from anymetal.policy.policy import Choice, choose

NAME = "paged_attention"
SIMDGROUP = 32
MOST_HEAD_SIZE = 256
INDICES = (torch.int32, torch.int64)
# Elements of a head that a lane has, in the kernels for whole simdgroups and in the others.
_WHOLE_STEPS = (1, 2, 3, 4, 8)
_TAIL_STEPS = (2, 4, 8)
_EIGHT, _TEAMS = 8, (8, 16, 32)  # elements of a lane, and lanes that can share a key
_MATRIX_ROWS, _MATRIX_TEAMS = 4, (8, 16)  # where scores can be products of matrices
# More keys than any sequence has; positions that far apart still fit in 32 bits.
_MOST_WINDOW = 2**30

Tensor = torch.Tensor


@dataclass(frozen=True)
class Call:
    """The arguments of a call, in the order of the schema."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    context_lens: Tensor
    cu_seqlens_q: Tensor | None = None
    scale: float | None = None
    is_causal: bool = True
    window: int | None = None
    softcap: float | None = None
    alibi_slopes: Tensor | None = None
    sinks: Tensor | None = None
    kv_cache_dtype: str = "auto"
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    max_context_len: int | None = None

    @property
    def batch(self) -> int:
        return self.block_tables.shape[0]

    @property
    def heads(self) -> int:
        return self.query.shape[-2]

    @property
    def size(self) -> int:
        return self.query.shape[-1]

    @property
    def kv_heads(self) -> int:
        return self.key_cache.shape[2]

    @property
    def block_size(self) -> int:
        return self.key_cache.shape[1]

    @property
    def queries(self) -> int:
        """Queries of each sequence; 0 where they differ."""
        if self.cu_seqlens_q is not None:
            return 0
        return self.query.shape[1] if self.query.dim() == 4 else 1


# --- checks ---------------------------------------------------------------------------------------


def _check(call: Call) -> None:
    """What can be said without looking at the numbers in the tensors."""
    check_dtype(NAME, "query", call.query, FLOATS)
    check_size(NAME, "query", call.query)
    check_caches(NAME, "query", call.query, call.key_cache, call.value_cache)
    cache_format(NAME, call.key_cache, call.kv_cache_dtype)
    _check_query(call)
    _check_tables(call)
    for name in ("alibi_slopes", "sinks"):
        tensor = getattr(call, name)
        if tensor is not None:
            check_dtype(NAME, name, tensor, (torch.float32,))
            check_shape(NAME, name, tensor, (call.heads,), "one a query head")
            _check_device(call, name, tensor)
    check_scale(NAME, "k_scale", call.k_scale, call.key_cache)
    check_scale(NAME, "v_scale", call.v_scale, call.key_cache)
    _check_numbers(call)


def _check_query(call: Call) -> None:
    query, cache = call.query, call.key_cache
    if query.dim() not in (3, 4):
        raise ValueError(
            f"{NAME}: argument 'query' expects shape [tokens, heads, head_size] or [batch, queries,"
            f" heads, head_size], got {list(query.shape)}"
        )
    if call.size != cache.shape[3] or call.size > MOST_HEAD_SIZE:
        raise ValueError(
            f"{NAME}: argument 'query' has heads of {call.size} elements; expected"
            f" {cache.shape[3]} as in 'key_cache', and at most {MOST_HEAD_SIZE}"
        )
    if call.kv_heads == 0 or call.heads % call.kv_heads:
        raise ValueError(
            f"{NAME}: argument 'query' has {call.heads} heads, which is no multiple of the"
            f" {call.kv_heads} heads of 'key_cache'"
        )


def _check_tables(call: Call) -> None:
    indices = {"block_tables": call.block_tables, "context_lens": call.context_lens}
    if call.cu_seqlens_q is not None:
        indices["cu_seqlens_q"] = call.cu_seqlens_q
    for name, tensor in indices.items():
        check_dtype(NAME, name, tensor, INDICES)
        _check_device(call, name, tensor)
    if call.block_tables.dim() != 2:
        raise ValueError(
            f"{NAME}: argument 'block_tables' expects shape [batch, blocks of a sequence], got"
            f" {list(call.block_tables.shape)}"
        )
    batch = call.batch
    check_shape(NAME, "context_lens", call.context_lens, (batch,), "one a row of 'block_tables'")
    if call.cu_seqlens_q is not None:
        why = "the first token of each sequence, and the number of tokens"
        check_shape(NAME, "cu_seqlens_q", call.cu_seqlens_q, (batch + 1,), why)
        if call.query.dim() != 3:
            raise ValueError(
                f"{NAME}: with 'cu_seqlens_q', argument 'query' expects shape [tokens, heads,"
                f" head_size], got {list(call.query.shape)}"
            )
    elif call.query.shape[0] != batch:
        raise ValueError(
            f"{NAME}: argument 'query' has {call.query.shape[0]} rows for {batch} sequences. Pass"
            " one a sequence, or 'cu_seqlens_q' with where each sequence's begin"
        )


def _check_device(call: Call, name: str, tensor: Tensor) -> None:
    if tensor.device != call.query.device:
        raise ValueError(
            f"{NAME}: argument '{name}' is on {tensor.device}, but 'query' is on"
            f" {call.query.device}"
        )


def _check_numbers(call: Call) -> None:
    if call.window is not None and call.window < 1:
        raise ValueError(f"{NAME}: argument 'window' expects 1 or more, got {call.window}")
    if call.softcap is not None and not 0.0 < call.softcap < math.inf:
        raise ValueError(
            f"{NAME}: argument 'softcap' expects a number above 0, or None for no cap; got"
            f" {call.softcap}"
        )
    if call.max_context_len is not None and call.max_context_len < 0:
        raise ValueError(
            f"{NAME}: argument 'max_context_len' expects 0 or more, got {call.max_context_len}"
        )


def _check_values(call: Call) -> None:
    """What tables and lengths hold, where that is in memory; kernels on a GPU only stay inside."""
    lengths = call.context_lens
    if call.batch:
        width, most = call.block_tables.shape[1], call.block_tables.shape[1] * call.block_size
        least, largest = (int(value) for value in lengths.aminmax())
        if least < 0 or largest > most:
            raise ValueError(
                f"{NAME}: argument 'context_lens' holds {least} to {largest}, but"
                f" 'block_tables' has room for {most} keys a sequence ({width} blocks of"
                f" {call.block_size})"
            )
        _check_blocks(call, largest)
    _check_starts(call)


def _check_blocks(call: Call, largest: int) -> None:
    used_columns = -(-largest // call.block_size)
    if used_columns == 0:
        return
    tables = call.block_tables[:, :used_columns]
    blocks = call.key_cache.shape[0]
    least, most = (int(value) for value in tables.aminmax())
    if least >= 0 and most < blocks:
        return
    columns = torch.arange(used_columns, device=tables.device)
    used = columns * call.block_size < call.context_lens[:, None]
    wrong = (used & ((tables < 0) | (tables >= blocks))).nonzero()
    if len(wrong):
        sequence, column = wrong[0].tolist()
        raise ValueError(
            f"{NAME}: argument 'block_tables' holds {int(tables[sequence, column])} at"
            f" [{sequence}, {column}], but 'key_cache' has {blocks} blocks"
        )


def _check_starts(call: Call) -> None:
    starts = call.cu_seqlens_q
    if starts is None:
        return
    tokens = call.query.shape[0]
    if int(starts[0]) != 0 or int(starts[-1]) != tokens or bool((starts.diff() < 0).any()):
        shown = starts.tolist() if len(starts) <= 8 else [*starts[:4].tolist(), "..."]
        raise ValueError(
            f"{NAME}: argument 'cu_seqlens_q' expects to rise from 0 to the {tokens} rows of"
            f" 'query', got {shown}"
        )


# --- launch ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """A call that has passed the checks, as the kernels see it."""

    call: Call
    query: Tensor  # [tokens, heads, head_size]
    output: Tensor

    def run(self) -> None:
        looped, split = self._choice("any", "looped"), self._choice("few_long_rows", "two_phase")
        part, parts = self._parts(split)
        if parts == 1:
            self._attend(looped, "looped", 1, 1)
        else:
            self._attend(split, "two_phase", part, parts)

    def _choice(self, shape_class: str, strategy: str) -> Choice:
        dtype = variants.DTYPE_NAMES[self.query.dtype]
        return choose(NAME, dtype, shape_class, self.query.device.type, strategy)

    def _rows(self, choice: Choice) -> int:
        """Rows of a threadgroup; queries of one sequence that share a head are its rows."""
        call = self.call
        alone = call.queries == 1 and call.heads == call.kv_heads
        return 1 if alone else choice.values["rows_per_group"]

    def _tiles(self, rows: int) -> int:
        call = self.call
        group = call.heads // call.kv_heads
        if call.queries:
            return call.batch * -(-call.queries * group // rows)
        return self.query.shape[0] * group // rows + call.batch

    def _parts(self, choice: Choice) -> tuple[int, int]:
        """Keys of a part of a sequence, and parts: one where there are enough threadgroups."""
        call = self.call
        keys = _longest(call)
        groups = self._tiles(self._rows(choice)) * call.kv_heads
        part = piece_of(choice, "keys_per_part", keys, groups)
        if call.window is not None and call.window <= part:
            return keys, 1
        parts = max(-(-keys // part), 1)
        if groups > choice.values["max_groups"] or self.output.numel() * parts > MAX_ELEMENTS:
            return keys, 1
        return part, parts

    def _attend(self, choice: Choice, strategy: str, part: int, parts: int) -> None:
        call, query = self.call, self.query
        rows = self._rows(choice)
        form = cache_format(NAME, call.key_cache, call.kv_cache_dtype)
        plain = form == SUFFIXES[query.dtype]
        variants.record(NAME, query.dtype, f"{strategy}_rows{rows}{'' if plain else f'_{form}'}", 1)
        keys, values = self.caches()
        shape = _shape_words(call.size)
        eight = plain and choice.values.get("width", 1) == _EIGHT
        if eight and _in_eights(call.size, keys, values):
            by_matrices = choice.values.get("matrices", 0) and self._fits_matrices(rows)
            shape = call.size // _EIGHT, "matrices" if by_matrices else "team"
        words = (NAME, rows, *shape, SUFFIXES[query.dtype], form)
        kernel = _paged_attention.kernels.kernel("_".join(map(str, words)), query.device)
        sinks = _or_nothing(call.sinks, query.device)
        value_scales = scales_for(call.v_scale, keys)
        partial, states = self._room(parts)
        numbers = self._numbers(part, parts, keys, values)
        kernel(
            query, keys, values, *self._indices(), _or_nothing(call.alibi_slopes, query.device),
            sinks, scales_for(call.k_scale, keys), value_scales, self.output, partial, states,
            numbers,
            threads=(choice.group_size * parts, call.kv_heads, self._tiles(rows)),
            group_size=(choice.group_size, 1, 1),
        )  # fmt: skip
        if parts > 1:
            threads = self.output.numel() // call.size * SIMDGROUP
            _paged_attention.kernel("paged_attention_reduce", query)(
                partial, states, sinks, value_scales, self.output, numbers,
                threads=threads, group_size=min(threads, choice.group_size),
            )  # fmt: skip

    def _fits_matrices(self, rows: int) -> bool:
        """Whether there is a kernel whose scores are products of matrices."""
        is_narrow = self.query.element_size() == torch.float16.itemsize
        return is_narrow and rows == _MATRIX_ROWS and self.call.size // _EIGHT in _MATRIX_TEAMS

    def caches(self) -> tuple[Tensor, Tensor]:
        """Keys and values with dense heads, in reach of the kernel."""
        call = self.call
        keys, values = (_dense_heads(stored(cache)) for cache in (call.key_cache, call.value_cache))
        for name, tensor in {"query": self.query, "key_cache": keys, "value_cache": values}.items():
            check_span(NAME, name, tensor)
        return keys, values

    def _indices(self) -> tuple[Tensor, Tensor, Tensor]:
        call = self.call
        lengths = _as_int32(call.context_lens)
        starts = lengths if call.cu_seqlens_q is None else _as_int32(call.cu_seqlens_q)
        return _as_int32(call.block_tables), lengths, starts

    def _room(self, parts: int) -> tuple[Tensor, Tensor]:
        """Sums and states of the parts; without parts, tensors that are not touched."""
        count = self.output.numel() // self.call.size * parts if parts > 1 else 1
        partial = torch.empty(count * self.call.size, device=self.output.device)
        # A row that no sequence has, which only a wrong cu_seqlens_q makes, is zero.
        fill = torch.empty if self.call.queries else torch.zeros
        return partial, fill(count, 2, device=self.output.device)

    def _numbers(self, part: int, parts: int, keys: Tensor, values: Tensor) -> dict[str, Any]:
        """`Numbers` of attention.metal."""
        call = self.call
        query_strides = dict(zip(("token", "head"), self.query.stride(), strict=False))
        strides = {f"query_{name}": stride for name, stride in query_strides.items()}
        for name, cache in (("key", keys), ("value", values)):
            steps = zip(("block", "slot", "head"), cache.stride(), strict=False)
            strides |= {f"{name}_{of}": stride for of, stride in steps}
        return {
            "tokens": self.query.shape[0],
            "batch": call.batch,
            "queries": call.queries,
            "kv_heads": call.kv_heads,
            "group": call.heads // call.kv_heads,
            "size": call.size,
            "blocks": call.key_cache.shape[0],
            "block_size": call.block_size,
            "table_width": call.block_tables.shape[1],
            "window": min(call.window or 0, _MOST_WINDOW),
            "part": part,
            "parts": parts,
            "scale": 1.0 / math.sqrt(call.size) if call.scale is None else call.scale,
            "softcap": call.softcap or 0.0,
            "is_causal": call.is_causal,
            "has_slopes": call.alibi_slopes is not None,
            "has_sinks": call.sinks is not None,
            "has_key_scales": call.k_scale is not None,
            "has_value_scales": call.v_scale is not None,
            "strides": strides,
        }


def _longest(call: Call) -> int:
    """A number of keys that no sequence has more of, in whole blocks; without asking a GPU."""
    room = call.block_tables.shape[1] * call.block_size
    longest = call.max_context_len
    if longest is None:
        longest = int(call.context_lens.max()) if call.context_lens.is_cpu else room
    return min(-(-longest // call.block_size) * call.block_size, room)


def _shape_words(size: int) -> tuple[int, str]:
    """The elements of a lane, and whether all lanes have so many."""
    if size % SIMDGROUP == 0 and size // SIMDGROUP in _WHOLE_STEPS:
        return size // SIMDGROUP, "whole"
    return next(steps for steps in _TAIL_STEPS if steps * SIMDGROUP >= size), "tail"


def _in_eights(size: int, *caches: Tensor) -> bool:
    """Whether every head of the caches can be read eight elements at a time by a team of lanes."""
    steps = (stride for cache in caches for stride in cache.stride()[:-1])
    return (
        size // _EIGHT in _TEAMS
        and size % _EIGHT == 0
        and all(step % _EIGHT == 0 for step in steps)
        and all(aligned(cache, _EIGHT) for cache in caches)
    )


def _dense_heads(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _as_int32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.int32).contiguous()


def _or_nothing(tensor: Tensor | None, device: torch.device) -> Tensor:
    return torch.empty(1, device=device) if tensor is None else tensor.contiguous()


# --- operator -------------------------------------------------------------------------------------


@on_call
def _cost(call: Arguments) -> Cost:
    """Every key and value once, those past a window not at all."""
    query, key_cache = call.query, call.key_cache
    seen = call.context_lens.clamp(max=call.window or 2**31 - 1)
    tokens = query.numel() // max(query.shape[-1] * query.shape[-2], 1)
    keys = int(seen.sum())
    _, _, kv_heads, size = key_cache.shape
    return Cost(
        read=query.nbytes + 2 * keys * kv_heads * size * key_cache.element_size(),
        write=query.nbytes,
        flops=4 * keys * query.shape[-2] * size * tokens // max(len(call.context_lens), 1),
    )


@operator(
    source="attention.metal",
    reference=with_torch,
    cases=CASES,
    bench=BENCH,
    baseline=with_torch_attention,
    cost=_cost,
    no_gradient="a cache is read while decoding, not while training. Use"
    " scaled_dot_product_attention",
)
def _paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    kv_cache_dtype: str = "auto",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    max_context_len: int | None = None,
) -> Tensor:
    _check(Call(**locals()))
    return torch.empty_like(query, memory_format=torch.contiguous_format)


@_paged_attention.run
def _(output: Tensor, *args: Any) -> None:
    call = Call(*args)
    if call.query.is_cpu:
        _check_values(call)
    keyless = not (call.query.numel() and call.block_tables.numel() and call.key_cache.numel())
    # On a GPU nobody has checked that every query belongs to a sequence.
    if keyless or (call.queries == 0 and not call.query.is_cpu):
        output.zero_()
    if not keyless:
        Launch(call, _dense_heads(call.query).flatten(0, -3), output).run()


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    *,
    cu_seqlens_q: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    kv_cache_dtype: str = "auto",
    k_scale: Scale = None,
    v_scale: Scale = None,
    max_context_len: int | None = None,
) -> Tensor:
    """Attention of queries over the keys and values of their sequences, which lie in blocks.

    The caches are [blocks, block_size, kv_heads, head_size], in the query's dtype, as
    torch.float8_e4m3fn or float8_e5m2, or as uint8 with `kv_cache_dtype` "fp8_e4m3" or "fp8_e5m2".
    Key i of sequence b is at `[block_tables[b, i // block_size], i % block_size]`, for i below
    `context_lens[b]`; what the tables hold beyond is not read. `k_scale` and `v_scale` (one
    number, or one a head) times what the caches hold are the keys and values.

    `query` is [batch, heads, head_size], one query a sequence; [batch, queries, heads, head_size];
    or [tokens, heads, head_size] with `cu_seqlens_q`, where sequence b has the rows from
    `cu_seqlens_q[b]` to `cu_seqlens_q[b + 1]`. Queries are the last tokens of their sequence:
    their own keys are in the cache already. With `is_causal` a query sees no later key, and with
    `window` only so many up to its own (and without `is_causal`, so many from it on).

    Scores are scaled by `scale` (1 / sqrt(head_size)), capped (softcap * tanh(score / softcap)),
    and lowered by `alibi_slopes[head]` times the distance; a head's sink takes its share of the
    softmax and brings no value. A query that sees no key gives zeros. `max_context_len` tells how
    long a sequence can be where the lengths are on a GPU: it only decides how the work is split.
    """
    return _paged_attention(
        query, key_cache, value_cache, block_tables, context_lens, cu_seqlens_q, scale, is_causal,
        window, softcap, alibi_slopes, sinks, kv_cache_dtype, as_scale(k_scale, query.device),
        as_scale(v_scale, query.device), max_context_len,
    )  # fmt: skip
