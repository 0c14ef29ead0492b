"""Sequences that share the blocks of a cache: they grow, are forked and end.

A block belongs to as many sequences as have it in their tables. A fork shares all blocks of its
parent; the first of them to write into a block that is shared and not full gets a copy of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anymetal.errors import OutOfBlocks
from anymetal.ops.paged.attention import paged_attention
from anymetal.ops.paged.blocks import copy_blocks, reshape_and_cache
from anymetal.ops.paged.formats import FP8, Scale, as_scale, check_scale

Tensor = torch.Tensor
Name = Hashable

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, *FP8.values())


@dataclass
class _Entry:
    """What is known of a sequence."""

    blocks: list[int] = field(default_factory=list)
    length: int = 0


@dataclass
class _Plan:
    """What an append changes: nothing of it is true before it is carried out."""

    tables: dict[Name, list[int]] = field(default_factory=dict)
    lengths: dict[Name, int] = field(default_factory=dict)
    copies: list[tuple[int, int]] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)


class PagedCache:
    """Keys and values of many sequences in one pool of blocks, the same tables for all layers.

    `key_caches[layer]` and `value_caches[layer]` are [blocks, block_size, heads, head_size], as
    `paged_attention` takes them. Sequences have names: any hashable value.

    ```python
    import torch
    from anymetal.ops import PagedCache

    cache = PagedCache(blocks=64, block_size=16, heads=2, head_size=64)
    cache.add("question")
    keys, values = torch.randn(2, 5, 2, 64).half()
    cache.append({"question": 5}, keys, values)
    cache.fork("question", "answer")
    result = cache.attend(torch.randn(1, 8, 64).half(), ["answer"])
    assert result.shape == (1, 8, 64)
    cache.free("question")
    ```

    Whatever raises changes nothing.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        heads: int,
        head_size: int,
        *,
        layers: int = 1,
        dtype: torch.dtype = torch.float16,
        device: torch.device | str = "cpu",
        k_scale: Scale = None,
        v_scale: Scale = None,
    ) -> None:
        sizes = {
            "blocks": blocks,
            "block_size": block_size,
            "heads": heads,
            "head_size": head_size,
            "layers": layers,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"PagedCache: argument '{name}' expects 1 or more, got {size}")
        if dtype not in _DTYPES:
            expected = ", ".join(str(known).removeprefix("torch.") for known in _DTYPES)
            raise TypeError(f"PagedCache: argument 'dtype' expects {expected}, got {dtype}")
        self.block_size, self.heads, self.head_size = block_size, heads, head_size
        self.device = torch.device(device)
        # A GPU of Apple's has no tensors of 8-bit floats: they are bytes there, and here.
        names = {known: name for name, known in FP8.items()}
        self.kv_cache_dtype = names.get(dtype, "auto")
        kept = torch.uint8 if dtype in names else dtype
        shape = (blocks, block_size, heads, head_size)
        self.key_caches = [torch.zeros(shape, dtype=kept, device=device) for _ in range(layers)]
        self.value_caches = [torch.zeros(shape, dtype=kept, device=device) for _ in range(layers)]
        self.k_scale, self.v_scale = (as_scale(s, self.device) for s in (k_scale, v_scale))
        check_scale("PagedCache", "k_scale", self.k_scale, self.key_caches[0])
        check_scale("PagedCache", "v_scale", self.v_scale, self.key_caches[0])
        self._free = list(range(blocks))[::-1]
        self._owners: Counter[int] = Counter()
        self._entries: dict[Name, _Entry] = {}

    # --- sequences --------------------------------------------------------------------------------

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence has."""
        return len(self._free)

    @property
    def sequences(self) -> tuple[Name, ...]:
        """The names of all sequences, the oldest first."""
        return tuple(self._entries)

    def length(self, sequence: Name) -> int:
        """The tokens of a sequence."""
        return self._entry(sequence).length

    def blocks_of(self, sequence: Name) -> tuple[int, ...]:
        """The blocks of a sequence, in the order of its tokens."""
        return tuple(self._entry(sequence).blocks)

    def add(self, sequence: Name) -> None:
        """A new sequence without tokens."""
        self._check_new(sequence)
        self._entries[sequence] = _Entry()

    def fork(self, sequence: Name, new: Name) -> None:
        """A new sequence with the tokens of another, in the same blocks: nothing is copied yet."""
        parent = self._entry(sequence)
        self._check_new(new)
        self._entries[new] = _Entry(list(parent.blocks), parent.length)
        self._owners.update(parent.blocks)

    def free(self, sequence: Name) -> None:
        """End a sequence; blocks that no other one has are free again."""
        entry = self._entry(sequence)
        del self._entries[sequence]
        for block in reversed(entry.blocks):
            self._release(block)

    def _entry(self, sequence: Name) -> _Entry:
        try:
            return self._entries[sequence]
        except KeyError:
            raise KeyError(
                f"PagedCache: no sequence {sequence!r}; there are {len(self._entries)}. Add it"
                " with .add(), or .fork() another one"
            ) from None

    def _check_new(self, sequence: Name) -> None:
        if sequence in self._entries:
            raise ValueError(
                f"PagedCache: there is a sequence {sequence!r} already. Free it first, or take"
                " another name"
            )

    def _release(self, block: int) -> None:
        self._owners[block] -= 1
        if self._owners[block] == 0:
            del self._owners[block]
            self._free.append(block)

    # --- new tokens -------------------------------------------------------------------------------

    def append(self, counts: Mapping[Name, int], key: Tensor, value: Tensor) -> None:
        """Keys and values of new tokens: `counts[sequence]` for each, one sequence after another.

        Both are [tokens, heads, head_size], or [layers, tokens, heads, head_size] for a cache of
        several layers. A model that has its layers one after the other calls `reserve`, and then
        `write` in each layer.
        """
        plan = self._planned(counts)
        layers = len(self.key_caches)
        expected = [len(plan.slots), self.heads, self.head_size]
        if layers > 1:
            expected.insert(0, layers)
        for name, tensor in (("key", key), ("value", value)):
            if list(tensor.shape) != expected:
                raise ValueError(
                    f"PagedCache.append: argument '{name}' expects shape {expected}, got"
                    f" {list(tensor.shape)}"
                )
        keys, values = (t.unbind(0) if layers > 1 else (t,) for t in (key, value))
        slots = self._copied(plan)
        for layer in range(layers):
            self.write(layer, slots, keys[layer], values[layer])
        self._carry_out(plan)

    def reserve(self, counts: Mapping[Name, int]) -> Tensor:
        """Slots for new tokens of sequences, which have them from now on; `write` fills them."""
        plan = self._planned(counts)
        slots = self._copied(plan)
        self._carry_out(plan)
        return slots

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Put keys and values [tokens, heads, head_size] of one layer into slots."""
        reshape_and_cache(
            key,
            value,
            self.key_caches[layer],
            self.value_caches[layer],
            slots,
            kv_cache_dtype=self.kv_cache_dtype,
            k_scale=self.k_scale,
            v_scale=self.v_scale,
        )

    def _planned(self, counts: Mapping[Name, int]) -> _Plan:
        """Which blocks the tokens go to; nothing is changed."""
        plan = _Plan()
        owners = Counter(self._owners)
        for sequence, count in counts.items():
            entry = self._entry(sequence)
            if count < 0:
                raise ValueError(
                    f"PagedCache: {count} tokens for sequence {sequence!r}; expected 0 or more"
                )
            self._plan_sequence(plan, owners, sequence, entry, count)
        if len(plan.taken) > len(self._free):
            raise OutOfBlocks(
                f"PagedCache: {sum(counts.values())} tokens of {len(counts)} sequences need"
                f" {len(plan.taken)} blocks, but {len(self._free)} of"
                f" {self.key_caches[0].shape[0]} are free. Free a sequence, or make the cache"
                " larger"
            )
        return plan

    def _plan_sequence(
        self, plan: _Plan, owners: Counter[int], sequence: Name, entry: _Entry, count: int
    ) -> None:
        blocks, end = list(entry.blocks), entry.length + count
        last = blocks[-1] if blocks else -1
        if count and entry.length % self.block_size and owners[last] > 1:
            blocks[-1] = self._taken(plan)
            plan.copies.append((last, blocks[-1]))
            owners[last] -= 1
        while len(blocks) * self.block_size < end:
            blocks.append(self._taken(plan))
        plan.tables[sequence], plan.lengths[sequence] = blocks, end
        for position in range(entry.length, end):
            block = blocks[position // self.block_size]
            plan.slots.append(block * self.block_size + position % self.block_size)

    def _taken(self, plan: _Plan) -> int:
        """The next free block; where there is none, a number: the plan is refused then."""
        index = len(self._free) - 1 - len(plan.taken)
        plan.taken.append(self._free[index] if index >= 0 else -1)
        return plan.taken[-1]

    def _copied(self, plan: _Plan) -> Tensor:
        """Copies the shared blocks that will be written, and gives the slots of the tokens."""
        if plan.copies:
            copy_blocks(self.key_caches, self.value_caches, plan.copies)
        return torch.tensor(plan.slots, dtype=torch.int64, device=self.device)

    def _carry_out(self, plan: _Plan) -> None:
        if plan.taken:
            del self._free[-len(plan.taken) :]
        self._owners.update(plan.taken)
        for sequence, blocks in plan.tables.items():
            entry = self._entries[sequence]
            entry.blocks, entry.length = blocks, plan.lengths[sequence]
        for block, _ in plan.copies:
            self._release(block)

    # --- attention --------------------------------------------------------------------------------

    def tables(self, sequences: Sequence[Name]) -> tuple[Tensor, Tensor]:
        """The block tables and lengths of sequences, as `paged_attention` takes them."""
        entries = [self._entry(sequence) for sequence in sequences]
        width = max((len(entry.blocks) for entry in entries), default=0)
        rows = [entry.blocks + [0] * (width - len(entry.blocks)) for entry in entries]
        blocks = torch.tensor(rows, dtype=torch.int32).reshape(len(entries), width)
        lengths = torch.tensor([entry.length for entry in entries], dtype=torch.int32)
        return blocks.to(self.device), lengths.to(self.device)

    def attend(
        self, query: Tensor, sequences: Sequence[Name], *, layer: int = 0, **options: Any
    ) -> Tensor:
        """`paged_attention` of queries, which are the last tokens of these sequences."""
        tables, lengths = self.tables(sequences)
        longest = max((self.length(sequence) for sequence in sequences), default=0)
        return paged_attention(
            query,
            self.key_caches[layer],
            self.value_caches[layer],
            tables,
            lengths,
            kv_cache_dtype=self.kv_cache_dtype,
            k_scale=self.k_scale,
            v_scale=self.v_scale,
            max_context_len=longest,
            **options,
        )
