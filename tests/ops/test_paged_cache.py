"""The paged cache against dense attention, over random schedules of appends, forks and frees."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from anymetal import ops
from anymetal.errors import OutOfBlocks
from anymetal.ops import PagedCache
from anymetal.ops.paged.formats import FP8

BLOCKS, BLOCK_SIZE, HEADS, SIZE = 12, 4, 2, 32
QUERY_HEADS = 4
Tensor = torch.Tensor


def tokens(count: int, heads: int = HEADS) -> tuple[Tensor, Tensor]:
    key, value = torch.randn(2, count, heads, SIZE)
    return key, value


def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """torch's attention of one query [heads, size] over [tokens, kv_heads, size], in float64."""
    q = query.double()[None, :, None]
    k, v = (t.double().transpose(0, 1)[None] for t in (key, value))
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(q, k, v, enable_gqa=True)[0, :, 0]


@dataclass
class Model:
    """What the cache should hold: every sequence's own keys and values."""

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)

    def add(self, name: int) -> None:
        self.keys[name] = self.values[name] = torch.empty(0, HEADS, SIZE)

    def append(self, counts: dict[int, int], key: Tensor, value: Tensor) -> None:
        first = 0
        for name, count in counts.items():
            here = slice(first, first + count)
            self.keys[name] = torch.cat((self.keys[name], key[here]))
            self.values[name] = torch.cat((self.values[name], value[here]))
            first += count

    def fork(self, name: int, new: int) -> None:
        self.keys[new], self.values[new] = self.keys[name], self.values[name]

    def free(self, name: int) -> None:
        del self.keys[name], self.values[name]


def check_attention(cache: PagedCache, model: Model, tolerance: float) -> None:
    names = list(model.keys)
    query = torch.randn(len(names), QUERY_HEADS, SIZE)
    results = cache.attend(query, names)
    for name, q, result in zip(names, query, results, strict=True):
        expected = dense(q, model.keys[name], model.values[name])
        torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)


def check_blocks(cache: PagedCache) -> None:
    """Every block is free or has owners, and no sequence has more or fewer than it needs."""
    owned = Counter(block for name in cache.sequences for block in cache.blocks_of(name))
    assert cache.free_blocks + len(owned) == BLOCKS
    for name in cache.sequences:
        assert len(cache.blocks_of(name)) == -(-cache.length(name) // BLOCK_SIZE)
        # What is shared is full, or has the same tokens in it for all who share it.
        assert len(set(cache.blocks_of(name))) == len(cache.blocks_of(name))


def snapshot(cache: PagedCache) -> Any:
    tables = {name: (cache.blocks_of(name), cache.length(name)) for name in cache.sequences}
    return tables, cache.free_blocks, [c.clone() for c in cache.key_caches + cache.value_caches]


def unchanged(cache: PagedCache, before: Any) -> None:
    """The tables are the same, and so is all that they lead to."""
    tables, free, contents = snapshot(cache)
    assert (tables, free) == before[:2]
    used = sorted({block for blocks, _ in tables.values() for block in blocks})
    for now, then in zip(contents, before[2], strict=True):
        assert torch.equal(now[used], then[used])


# --- random schedules -----------------------------------------------------------------------------


class Schedule(RuleBasedStateMachine):
    """Anything in any order, also what must be refused; after each step all sequences are right."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.cache = PagedCache(BLOCKS, BLOCK_SIZE, HEADS, SIZE, dtype=torch.float32)
        self.model = Model()
        self.next = 0

    @initialize(count=st.integers(1, 9))
    def begin(self, count: int) -> None:
        self.add()
        key, value = tokens(count)
        self.cache.append({0: count}, key, value)
        self.model.append({0: count}, key, value)

    @rule()
    def add(self) -> None:
        self.cache.add(self.next)
        self.model.add(self.next)
        self.next += 1

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        known = st.sampled_from(list(self.model.keys))
        names = data.draw(st.lists(known, min_size=1, max_size=3, unique=True))
        counts = {name: data.draw(st.integers(0, 6)) for name in names}
        key, value = tokens(sum(counts.values()))
        before = snapshot(self.cache)
        try:
            self.cache.append(counts, key, value)
        except OutOfBlocks:
            unchanged(self.cache, before)
        else:
            self.model.append(counts, key, value)

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.model.keys)))
        self.cache.fork(name, self.next)
        self.model.fork(name, self.next)
        self.next += 1

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.model.keys)))
        self.cache.free(name)
        self.model.free(name)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        gone = data.draw(st.integers(0, self.next + 1).filter(lambda n: n not in self.model.keys))
        for act in (self.cache.free, lambda name: self.cache.fork(name, self.next)):
            with pytest.raises(KeyError, match=f"no sequence {gone}"):
                act(gone)

    @invariant()
    def everything_is_there(self) -> None:
        assert self.cache.sequences == tuple(self.model.keys)
        check_blocks(self.cache)
        check_attention(self.cache, self.model, 1e-5)


Schedule.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestSchedule = Schedule.TestCase


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, *FP8.values()], ids=str)
def test_long_schedule_in_every_dtype(dtype: torch.dtype) -> None:
    """Beam search in small: sequences grow, the worst ends, and another one takes its place."""
    chosen = random.Random(3)
    torch.manual_seed(3)
    scales = {"k_scale": 0.05, "v_scale": 0.02} if dtype in FP8.values() else {}
    cache = PagedCache(BLOCKS * 2, BLOCK_SIZE, HEADS, SIZE, dtype=dtype, **scales)
    model = Model()
    cache.add(0)
    model.add(0)
    inside = torch.float16 if dtype in FP8.values() else dtype
    for step in range(1, 30):
        names = list(model.keys)
        counts = {name: chosen.choice((0, 1, 2)) for name in names}
        key, value = (t.to(inside) for t in tokens(sum(counts.values())))
        cache.append(counts, key, value)
        model.append(counts, _kept(key, dtype, 0.05), _kept(value, dtype, 0.02))
        parent, victim = chosen.choice(names), chosen.choice(names)
        cache.fork(parent, step)
        model.fork(parent, step)
        if len(names) > 4:
            cache.free(victim)
            model.free(victim)
        query = torch.randn(len(model.keys), QUERY_HEADS, SIZE).to(inside)
        results = cache.attend(query, list(model.keys))
        for name, q, result in zip(model.keys, query, results, strict=True):
            expected = dense(q, model.keys[name], model.values[name])
            close = 1e-2 if inside == torch.bfloat16 else 2e-3
            torch.testing.assert_close(result.double(), expected, rtol=close, atol=close)
    for name in list(model.keys):
        cache.free(name)
    assert cache.free_blocks == BLOCKS * 2


def _kept(tensor: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """What is left of a tensor in the cache."""
    if dtype not in FP8.values():
        return tensor.float()
    largest = torch.finfo(dtype).max
    return (tensor.float() / scale).clamp(-largest, largest).to(dtype).float() * scale


# --- sharing --------------------------------------------------------------------------------------


@pytest.fixture
def cache() -> PagedCache:
    made = PagedCache(6, BLOCK_SIZE, HEADS, SIZE, dtype=torch.float32)
    made.add("a")
    made.append({"a": 6}, *tokens(6))
    return made


def test_fork_shares_until_one_writes(cache: PagedCache) -> None:
    cache.fork("a", "b")
    assert cache.blocks_of("a") == cache.blocks_of("b")
    assert cache.free_blocks == 4
    shared = cache.blocks_of("a")
    cache.append({"b": 1}, *tokens(1))
    assert cache.free_blocks == 3
    assert cache.blocks_of("a") == shared
    assert cache.blocks_of("b")[0] == shared[0]
    assert cache.blocks_of("b")[1] != shared[1]
    copied = cache.key_caches[0][cache.blocks_of("b")[1], :2]
    assert torch.equal(copied, cache.key_caches[0][shared[1], :2])


def test_last_owner_writes_in_place(cache: PagedCache) -> None:
    cache.fork("a", "b")
    before = cache.blocks_of("a")
    cache.append({"a": 1, "b": 1}, *tokens(2))
    assert cache.free_blocks == 3  # one of the two got a copy, the other kept the block
    assert cache.blocks_of("b") == before


def test_full_block_is_not_copied(cache: PagedCache) -> None:
    cache.append({"a": 2}, *tokens(2))
    cache.fork("a", "b")
    cache.append({"b": 1}, *tokens(1))
    assert cache.blocks_of("b")[:2] == cache.blocks_of("a")
    assert cache.free_blocks == 3


def test_blocks_live_as_long_as_a_fork(cache: PagedCache) -> None:
    cache.fork("a", "b")
    cache.free("a")
    assert cache.free_blocks == 4
    cache.free("b")
    assert cache.free_blocks == 6


def test_layers_share_tables() -> None:
    cache = PagedCache(4, BLOCK_SIZE, HEADS, SIZE, layers=3, dtype=torch.float32)
    cache.add("a")
    key, value = torch.randn(2, 3, 5, HEADS, SIZE)
    cache.append({"a": 5}, key, value)
    cache.fork("a", "b")
    slots = cache.reserve({"b": 1})
    new = [tokens(1) for _ in range(3)]
    for layer, pair in enumerate(new):
        cache.write(layer, slots, *pair)
    query = torch.randn(1, QUERY_HEADS, SIZE)
    for layer, (k, v) in enumerate(new):
        longer = [torch.cat(pair) for pair in ((key[layer], k), (value[layer], v))]
        result = cache.attend(query, ["b"], layer=layer)[0]
        torch.testing.assert_close(result.double(), dense(query[0], *longer), rtol=1e-5, atol=1e-5)
        result = cache.attend(query, ["a"], layer=layer)[0]
        expected = dense(query[0], key[layer], value[layer])
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)


def test_options_reach_the_attention(cache: PagedCache) -> None:
    query = torch.randn(1, 3, QUERY_HEADS, SIZE)
    result = cache.attend(query, ["a"], window=2, softcap=3.0)
    tables, lengths = cache.tables(["a"])
    expected = ops.paged_attention(
        query, cache.key_caches[0], cache.value_caches[0], tables, lengths, window=2, softcap=3.0
    )
    assert torch.equal(result, expected)


def test_cache_on_the_virtual_device(mps: torch.device) -> None:
    torch.manual_seed(1)
    caches = [
        PagedCache(6, BLOCK_SIZE, HEADS, SIZE, dtype=torch.float8_e4m3fn, device=device)
        for device in ("cpu", mps)
    ]
    key, value = tokens(9)
    query = torch.randn(2, QUERY_HEADS, SIZE)
    results = []
    for cache in caches:
        cache.add("a")
        cache.append({"a": 6}, key[:6].to(cache.device), value[:6].to(cache.device))
        cache.fork("a", "b")
        cache.append({"b": 3}, key[6:].to(cache.device), value[6:].to(cache.device))
        results.append(cache.attend(query.to(cache.device), ["a", "b"]).cpu())
    assert torch.equal(*results)


# --- refusals -------------------------------------------------------------------------------------


def test_out_of_blocks_changes_nothing(cache: PagedCache) -> None:
    cache.add("b")
    cache.fork("a", "c")
    before = snapshot(cache)
    message = "22 tokens of 3 sequences need 6 blocks, but 4 of 6 are free. Free a sequence"
    with pytest.raises(OutOfBlocks, match=message):
        cache.append({"a": 1, "b": 20, "c": 1}, *tokens(22))
    unchanged(cache, before)
    with pytest.raises(OutOfBlocks):
        cache.reserve({"b": 17})
    unchanged(cache, before)
    cache.append({"b": 16}, *tokens(16))
    assert cache.free_blocks == 0


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ((2, HEADS, SIZE), (3, HEADS, SIZE), ValueError, r"'key' expects shape \[3, 2, 32\]"),
        ((3, HEADS, SIZE), (3, HEADS, 8), ValueError, r"'value' expects shape \[3, 2, 32\]"),
    ],
)
def test_wrong_tokens_change_nothing(
    cache: PagedCache, key: Any, value: Any, error: type[Exception], message: str
) -> None:
    cache.fork("a", "b")
    before = snapshot(cache)
    with pytest.raises(error, match=message):
        cache.append({"b": 3}, torch.randn(key), torch.randn(value))
    unchanged(cache, before)


def test_wrong_dtype_changes_nothing(cache: PagedCache) -> None:
    cache.fork("a", "b")
    before = snapshot(cache)
    key, value = tokens(3)
    with pytest.raises(TypeError, match="'key' expects float32"):
        cache.append({"b": 3}, key.double(), value.double())
    unchanged(cache, before)
    with pytest.raises(RuntimeError, match="has no gradient"):
        cache.append({"b": 3}, key.requires_grad_(), value)
    unchanged(cache, before)
    cache.append({"b": 3}, *tokens(3))


def test_failure_in_a_later_layer_changes_nothing() -> None:
    cache = PagedCache(6, BLOCK_SIZE, HEADS, SIZE, layers=2, dtype=torch.float32)
    cache.add("a")
    cache.append({"a": 6}, *torch.randn(2, 2, 6, HEADS, SIZE))
    before = snapshot(cache)
    write = cache.write

    def failing(layer: int, *args: Any) -> None:
        if layer == 1:
            raise MemoryError
        write(layer, *args)

    cache.write = failing  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        cache.append({"a": 1}, *torch.randn(2, 2, 1, HEADS, SIZE))
    assert snapshot(cache)[:2] == before[:2]


def test_unknown_and_known_sequences_are_named(cache: PagedCache) -> None:
    for act in (cache.free, cache.length, cache.blocks_of, lambda name: cache.fork(name, "c")):
        with pytest.raises(KeyError, match="no sequence 'x'; there are 1"):
            act("x")
    with pytest.raises(KeyError, match="no sequence 'x'"):
        cache.append({"a": 1, "x": 1}, *tokens(2))
    with pytest.raises(KeyError, match="no sequence 'x'"):
        cache.attend(torch.randn(1, QUERY_HEADS, SIZE), ["x"])
    assert cache.length("a") == 6
    cache.fork("a", "b")
    for act in (cache.add, lambda name: cache.fork("a", name)):
        with pytest.raises(ValueError, match="there is a sequence 'b' already"):
            act("b")
    assert cache.sequences == ("a", "b")


def test_wrong_sizes_are_named(cache: PagedCache) -> None:
    with pytest.raises(ValueError, match="-1 tokens for sequence 'a'; expected 0 or more"):
        cache.reserve({"a": -1})
    with pytest.raises(ValueError, match="'block_size' expects 1 or more, got 0"):
        PagedCache(4, 0, 2, 32)
    with pytest.raises(ValueError, match="'k_scale' expects one number or 2"):
        PagedCache(4, 4, 2, 32, k_scale=torch.ones(3))
    with pytest.raises(TypeError, match=r"'dtype' expects float32, .* got torch.int8"):
        PagedCache(4, 4, 2, 32, dtype=torch.int8)


def test_no_sequences_attend_to_nothing(cache: PagedCache) -> None:
    assert cache.attend(torch.randn(0, QUERY_HEADS, SIZE), []).shape == (0, QUERY_HEADS, SIZE)
    assert cache.reserve({}).numel() == 0
