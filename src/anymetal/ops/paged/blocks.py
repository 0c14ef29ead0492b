"""Cache maintenance: new keys and values into their slots, blocks into other blocks.

These operators write into their arguments and give nothing back. They have no gradient: with an
argument that requires one they raise instead of losing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymetal.ops.declare import FLOATS, Case, Cost, operator, variants
from anymetal.ops.declare.checks import (
    check_dtype,
    check_like,
    check_shape,
    check_size,
    check_writable,
)
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import group_shape
from anymetal.ops.paged.formats import (
    CACHES,
    FP8,
    Scale,
    as_scale,
    cache_format,
    check_caches,
    check_scale,
    scales_for,
    stored,
)
from anymetal.policy.policy import choose

SOURCE = "blocks.metal"
INDICES = (torch.int32, torch.int64)
# Words that blocks are copied in, by their size in bytes; the widest one where blocks are dense.
_WORDS = {1: "uchar", 2: "ushort", 4: "uint", 16: "uint4"}

Tensor = torch.Tensor
Pairs = Tensor | Sequence[tuple[int, int]]


# --- new keys and values --------------------------------------------------------------------------


def _check_dense_heads(operator: str, name: str, cache: Tensor) -> None:
    if cache.shape[-1] > 1 and cache.stride(-1) != 1:
        raise ValueError(
            f"{operator}: argument '{name}' of shape {list(cache.shape)} has strides"
            f" {list(cache.stride())}, but the elements of a head must stand side by side"
        )


def _check_slots(slots: Tensor, cache: Tensor) -> None:
    """Slots that exist, none of them twice: two tokens in one would be written in any order."""
    most = cache.shape[0] * cache.shape[1]
    largest = int(slots.max()) if slots.numel() else -1
    if largest >= most:
        raise ValueError(
            f"reshape_and_cache: argument 'slot_mapping' holds {largest}, but 'key_cache' has"
            f" {most} slots ({cache.shape[0]} blocks of {cache.shape[1]})"
        )
    used, times = torch.unique(slots[slots >= 0], return_counts=True)
    if times.numel() and int(times.max()) > 1:
        twice = int(used[times.argmax()])
        raise ValueError(
            f"reshape_and_cache: argument 'slot_mapping' holds {twice} {int(times.max())} times;"
            " a slot takes one token"
        )


def _write_with_torch(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str = "auto",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    used = slot_mapping >= 0
    slots = slot_mapping[used]
    block_size = key_cache.shape[1]
    kind = FP8.get("fp8_e4m3" if kv_cache_dtype == "fp8" else kv_cache_dtype)
    for given, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
        new = given[used] if scale is None else given[used] / scale.reshape(-1, 1)
        if cache.dtype == torch.uint8 and kind is not None:
            new = new.to(kind).view(torch.uint8)
        cache[slots // block_size, slots % block_size] = new.to(cache.dtype)


def _write_case(tokens: int, cache: tuple[int, ...], form: str = "auto", scales: int = 0) -> Case:
    """`cache` is the shape of one; the last token goes nowhere. `scales`: 1, or one a head."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        new = [torch.randn(tokens, *cache[2:], generator=generator).to(dtype) for _ in range(2)]
        slots = torch.randperm(cache[0] * cache[1], generator=generator)[:tokens]
        slots[-1:] = -1
        kept = torch.uint8 if form in FP8 else dtype
        caches = [torch.zeros(cache, dtype=kept) for _ in range(2)]
        more = [0.5 + torch.rand(scales, generator=generator) for _ in range(2 if scales else 0)]
        given = [t.to(device) for t in (*new, *caches, slots)]
        return [*given, form, *(scale.to(device) for scale in more)], {}

    words = [f"{tokens} tokens into", "x".join(map(str, cache)), form, f"{scales} scales"]
    return Case(" ".join(words), make)


@operator(
    source=SOURCE,
    reference=_write_with_torch,
    mutates=["key_cache", "value_cache"],
    in_part=True,
    no_gradient="a cache is written while decoding. Call it under torch.no_grad(), or detach its"
    " arguments",
    cases=[
        _write_case(0, (2, 4, 1, 8)),
        _write_case(1, (1, 1, 1, 1)),
        _write_case(7, (3, 5, 2, 33), scales=2),
        _write_case(33, (5, 16, 4, 32)),
        _write_case(9, (2, 8, 3, 31), "fp8_e4m3", scales=1),
    ],
    bench=[_write_case(512, (64, 16, 8, 128)), _write_case(512, (64, 16, 8, 128), "fp8_e4m3")],
    cost=lambda key, value, *_, **__: Cost(
        read=key.nbytes + value.nbytes, write=key.nbytes + value.nbytes
    ),
)
def _reshape_and_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str = "auto",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    name = "reshape_and_cache"
    check_dtype(name, "key", key, FLOATS)
    check_like(name, "value", value, "key", key)
    for argument, tensor in (("key", key), ("value", value)):
        check_size(name, argument, tensor)
    check_caches(name, "key", key, key_cache, value_cache)
    cache_format(name, key_cache, kv_cache_dtype)
    if key.dim() != 3 or key.shape[1:] != key_cache.shape[2:]:
        raise ValueError(
            f"{name}: argument 'key' expects shape [tokens, {key_cache.shape[2]},"
            f" {key_cache.shape[3]}] (heads and head_size of 'key_cache'), got {list(key.shape)}"
        )
    check_shape(name, "value", value, key.shape, "that of 'key'")
    check_dtype(name, "slot_mapping", slot_mapping, INDICES)
    check_shape(name, "slot_mapping", slot_mapping, key.shape[:1], "one a row of 'key'")
    for argument, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        check_writable(name, argument, cache)
        _check_dense_heads(name, argument, cache)
    check_scale(name, "k_scale", k_scale, key_cache)
    check_scale(name, "v_scale", v_scale, key_cache)


@_reshape_and_cache.run
def _(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str = "auto",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    if slot_mapping.is_cpu:
        _check_slots(slot_mapping, key_cache)
    if not key.numel():
        return
    form = cache_format("reshape_and_cache", key_cache, kv_cache_dtype)
    key, value = (t if t.stride(-1) == 1 else t.contiguous() for t in (key, value))
    caches = [stored(cache) for cache in (key_cache, value_cache)]
    slots = slot_mapping.to(key.device, torch.int64).contiguous()
    tokens, heads, size = key.shape
    blocks, block_size = key_cache.shape[:2]
    numbers = {
        "block_size": block_size,
        "blocks": blocks,
        "has_key_scales": k_scale is not None,
        "has_value_scales": v_scale is not None,
        "key": {"token": key.stride(0), "head": key.stride(1)},
        "value": {"token": value.stride(0), "head": value.stride(1)},
        "key_cache": _cache_strides(caches[0]),
        "value_cache": _cache_strides(caches[1]),
    }
    variants.record("reshape_and_cache", key.dtype, f"elementwise_{form}", 1)
    kernel = _reshape_and_cache.kernels.kernel(
        f"reshape_and_cache_{SUFFIXES[key.dtype]}_{form}", key.device
    )
    kernel(
        key, value, *caches, slots, scales_for(k_scale, key_cache), scales_for(v_scale, key_cache),
        numbers,
        threads=(size, heads, tokens),
        group_size=(*group_shape((size, heads), _group_size("reshape_and_cache", key)), 1),
    )  # fmt: skip


def _cache_strides(cache: Tensor, elements: int = 1) -> dict[str, int]:
    """In words of so many elements."""
    block, slot, head, _ = (stride // elements for stride in cache.stride())
    return {"block": block, "slot": slot, "head": head}


def _group_size(operator: str, tensor: Tensor) -> int:
    dtype = variants.DTYPE_NAMES.get(tensor.dtype, "uint8")
    return choose(operator, dtype, "any", tensor.device.type, "elementwise").group_size


# --- blocks ---------------------------------------------------------------------------------------


def _check_pairs(operator: str, pairs: Tensor, source: Tensor, target: Tensor) -> None:
    """Blocks that exist, and no block written twice, nor read where it is written."""
    if not pairs.numel():
        return
    for column, name, cache in ((0, "source", source), (1, "target", target)):
        blocks = cache.shape[0]
        least, most = (int(value) for value in pairs[:, column].aminmax())
        if least < 0 or most >= blocks:
            wrong = least if least < 0 else most
            raise ValueError(
                f"{operator}: argument 'block_mapping' holds {wrong} as a {name}, which has"
                f" {blocks} blocks"
            )
    targets = torch.unique(pairs[:, 1])
    if len(targets) < len(pairs):
        raise ValueError(
            f"{operator}: argument 'block_mapping' has {len(pairs)} pairs with {len(targets)}"
            " different targets; a block takes one copy"
        )
    both = targets[torch.isin(targets, pairs[:, 0])]
    if len(both) and source.data_ptr() == target.data_ptr():
        raise ValueError(
            f"{operator}: argument 'block_mapping' has block {int(both[0])} as a source and as a"
            " target, and pairs are copied in no order"
        )


def _check_mapping(operator: str, pairs: Tensor) -> None:
    check_dtype(operator, "block_mapping", pairs, INDICES)
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(
            f"{operator}: argument 'block_mapping' expects shape [pairs, 2] (source and target),"
            f" got {list(pairs.shape)}"
        )


def _check_cache(operator: str, name: str, cache: Tensor, *, is_written: bool = True) -> None:
    check_dtype(operator, name, cache, CACHES)
    check_size(operator, name, cache)
    if cache.dim() != 4:
        raise ValueError(
            f"{operator}: argument '{name}' expects shape [blocks, block_size, kv_heads,"
            f" head_size], got {list(cache.shape)}"
        )
    _check_dense_heads(operator, name, cache)
    if is_written:
        check_writable(operator, name, cache)


def _copy_with_torch(
    key_caches: list[Tensor], value_caches: list[Tensor], block_mapping: Tensor
) -> None:
    for cache in (*key_caches, *value_caches):
        _swap_with_torch(cache, cache, block_mapping)


def _swap_with_torch(source: Tensor, target: Tensor, block_mapping: Tensor) -> None:
    read, written = (block_mapping[:, i].long() for i in range(2))
    target[written.to(target.device)] = source[read.to(source.device)].to(target.device)


def _blocks_case(pairs: int, cache: tuple[int, ...], layers: int = 0) -> Case:
    """Pairs of the first blocks and later ones; with `layers`, two lists of so many caches."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        caches = [
            torch.randn(cache, generator=generator).to(dtype).to(device)
            for _ in range(max(2 * layers, 2))
        ]
        blocks = torch.randperm(cache[0], generator=generator)
        mapping = torch.stack((blocks[:pairs], blocks[pairs : 2 * pairs]), 1).to(device)
        given = [caches[:layers], caches[layers:]] if layers else caches
        return [*given, mapping], {}

    words = [f"{pairs} pairs of", "x".join(map(str, cache)), f"{layers} layers" if layers else ""]
    return Case(" ".join(words).strip(), make)


def _copy_cost(*args: Any) -> Cost:
    """As many blocks as there are pairs, of each cache that is written."""
    *caches, pairs = args
    written = caches[0] + caches[1] if isinstance(caches[0], list) else caches[1:]
    size = sum(cache.nbytes // max(len(cache), 1) for cache in written) * len(pairs)
    return Cost(read=size, write=size)


@operator(
    source=SOURCE,
    reference=_copy_with_torch,
    mutates=["key_caches", "value_caches"],
    in_part=True,
    no_gradient="caches are not differentiated. Call it under torch.no_grad()",
    cases=[
        _blocks_case(0, (2, 4, 1, 8), layers=1),
        _blocks_case(1, (2, 1, 1, 1), layers=1),
        _blocks_case(2, (5, 3, 2, 33), layers=2),
        _blocks_case(3, (9, 16, 2, 32), layers=1),
    ],
    bench=[_blocks_case(64, (256, 16, 8, 128), layers=1)],
    cost=_copy_cost,
)
def _copy_blocks(
    key_caches: list[Tensor], value_caches: list[Tensor], block_mapping: Tensor
) -> None:
    name = "copy_blocks"
    if len(key_caches) != len(value_caches):
        raise ValueError(
            f"{name}: argument 'value_caches' has {len(value_caches)} caches, 'key_caches'"
            f" {len(key_caches)}"
        )
    for argument, caches in (("key_caches", key_caches), ("value_caches", value_caches)):
        for i, cache in enumerate(caches):
            _check_cache(name, f"{argument}[{i}]", cache)
            if cache.device != caches[0].device:
                raise ValueError(
                    f"{name}: argument '{argument}[{i}]' is on {cache.device}, the first on"
                    f" {caches[0].device}"
                )
    _check_mapping(name, block_mapping)


@_copy_blocks.run
def _(key_caches: list[Tensor], value_caches: list[Tensor], block_mapping: Tensor) -> None:
    caches = [*key_caches, *value_caches]
    if block_mapping.is_cpu:
        for cache in caches:
            _check_pairs("copy_blocks", block_mapping, cache, cache)
    for cache in caches:
        _copy_pairs("copy_blocks", cache, cache, block_mapping)


@operator(
    source=SOURCE,
    reference=_swap_with_torch,
    mutates=["target"],
    in_part=True,
    no_gradient="caches are not differentiated. Call it under torch.no_grad()",
    cases=[
        _blocks_case(0, (2, 4, 1, 8)),
        _blocks_case(1, (2, 1, 1, 1)),
        _blocks_case(2, (5, 3, 2, 33)),
        _blocks_case(3, (9, 16, 2, 32)),
    ],
    bench=[_blocks_case(64, (256, 16, 8, 128))],
    cost=_copy_cost,
)
def _swap_blocks(source: Tensor, target: Tensor, block_mapping: Tensor) -> None:
    name = "swap_blocks"
    _check_cache(name, "source", source, is_written=False)
    _check_cache(name, "target", target)
    check_dtype(name, "target", target, [source.dtype])
    check_shape(
        name, "target", target, (target.shape[0], *source.shape[1:]), "blocks as those of 'source'"
    )
    _check_mapping(name, block_mapping)


@_swap_blocks.run
def _(source: Tensor, target: Tensor, block_mapping: Tensor) -> None:
    if block_mapping.is_cpu:
        _check_pairs("swap_blocks", block_mapping, source, target)
    if source.device == target.device:
        _copy_pairs("swap_blocks", source, target, block_mapping)
        return
    # No kernel sees the memory of two devices: the blocks are gathered, moved and put in place.
    variants.record("swap_blocks", torch.float32, "between_devices", 1)
    read, written = (block_mapping[:, i].long() for i in range(2))
    blocks = stored(source).index_select(0, read.to(source.device))
    stored(target).index_copy_(0, written.to(target.device), blocks.to(target.device))


def _copy_pairs(operator: str, source: Tensor, target: Tensor, pairs: Tensor) -> None:
    slots, heads, size = source.shape[1:]
    if not pairs.numel() or not slots * heads * size:
        return
    word = _word([source, target])
    elements = word // source.element_size() if word > source.element_size() else 1
    numbers = {
        "heads": heads,
        "source_blocks": source.shape[0],
        "target_blocks": target.shape[0],
        "source": _cache_strides(source, elements),
        "target": _cache_strides(target, elements),
    }
    columns, rows = size // elements, slots * heads
    if word == 16:
        columns, rows = slots * heads * size // elements, 1
    variants.record(operator, torch.float32, "elementwise", 4 if word == 16 else 1)
    read, written = (t.view(torch.uint8) if word == 16 else stored(t) for t in (source, target))
    _copy_blocks.kernels.kernel(f"copy_blocks_{_WORDS[word]}", source.device)(
        read, written, pairs.to(source.device, torch.int64).contiguous(),
        numbers,
        threads=(columns, rows, len(pairs)),
        group_size=(*group_shape((columns, rows), _group_size(operator, source)), 1),
    )  # fmt: skip


def _word(caches: Sequence[Tensor]) -> int:
    """The bytes that a thread copies: 16 where blocks are dense and start at multiples of 16."""
    size = caches[0].element_size()
    for cache in caches:
        start = cache.storage_offset() * size if cache.is_mps else cache.data_ptr()
        distance = cache.stride(0) * size if cache.shape[0] > 1 else 0
        inside = cache[:1].numel() * size
        if not cache[0].is_contiguous() or any(n % 16 for n in (start, distance, inside)):
            return size
    return 16


# --- public functions -----------------------------------------------------------------------------


def reshape_and_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    kv_cache_dtype: str = "auto",
    k_scale: Scale = None,
    v_scale: Scale = None,
) -> None:
    """Write keys and values of new tokens into their slots of a paged cache.

    `key` and `value` are [tokens, kv_heads, head_size]. Slot s is
    `cache[s // block_size, s % block_size]`; a token with a negative slot is left out. The cache
    gets key / k_scale and value / v_scale, rounded to the nearest (even where two are as near); for
    8-bit floats, numbers past the largest become the largest, and NaN stays NaN.
    """
    scales = (as_scale(scale, key.device) for scale in (k_scale, v_scale))
    _reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, *scales)


def copy_blocks(
    key_caches: Sequence[Tensor], value_caches: Sequence[Tensor], block_mapping: Pairs
) -> None:
    """Copy blocks inside caches, in all layers' alike: pairs of source and target.

    Pairs are copied in no order, so no block may be a source and a target, or a target twice.
    """
    _copy_blocks(list(key_caches), list(value_caches), _as_pairs(block_mapping))


def swap_blocks(source: Tensor, target: Tensor, block_mapping: Pairs) -> None:
    """Copy blocks of one cache into another, which may be on another device.

    Moving sequences out of a GPU's memory and in again is called swapping; each direction is a
    call.
    """
    _swap_blocks(source, target, _as_pairs(block_mapping))


def _as_pairs(pairs: Pairs) -> Tensor:
    if isinstance(pairs, Tensor):
        return pairs
    return torch.tensor(list(pairs), dtype=torch.int64, device="cpu").reshape(-1, 2)
