"""The arguments of rope, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anymetal.ops.declare import FLOATS
from anymetal.ops.declare.checks import check_dtype, check_like, check_size

BASE = 10000.0

Tensor = torch.Tensor
Optional = torch.Tensor | None


@dataclass(frozen=True)
class Rotation:
    """The arguments of rope, or of its gradient, where q and k are gradients."""

    q: Tensor
    k: Optional = None
    cos: Optional = None
    sin: Optional = None
    positions: Optional = None
    base: float = BASE
    offset: int = 0
    rotary_dim: int | None = None
    interleaved: bool = False
    sequence_dim: int = -2
    frequencies: Sequence[float] | None = None

    @property
    def dim(self) -> int:
        return self.q.shape[-1]

    @property
    def half(self) -> int:
        """Pairs of a head that are turned."""
        if self.rotary_dim is not None:
            return self.rotary_dim // 2
        return self.cos.shape[-1] if self.cos is not None else self.dim // 2

    @property
    def mode(self) -> str:
        """How a token finds its position, as the kernel's `Positions` calls it."""
        if self.cos is not None and self.cos.dim() == 3:
            return "own_row"
        if self.positions is None:
            return "in_sequence"
        return "own_ids" if self.positions.dim() == 2 else "shared_ids"

    def tokens(self, tensor: Tensor) -> Tensor:
        """A tensor as batch, sequence, heads, elements."""
        if tensor.dim() == 2:
            return tensor[None, :, None]
        tensor = tensor[None] if tensor.dim() == 3 else tensor
        tensor = tensor.flatten(0, -4)
        return tensor if self.sequence_dim == -3 else tensor.transpose(1, 2)

    def inverse_frequencies(self) -> list[float]:
        if self.frequencies is not None:
            return list(self.frequencies)
        return [self.base ** (-i / self.half) for i in range(self.half)]


# --- checks ---------------------------------------------------------------------------------------


def check(name: str, call: Rotation) -> None:
    check_dtype(name, "q", call.q, FLOATS)
    check_size(name, "q", call.q)
    if not call.base > 0 and call.cos is None and call.frequencies is None:
        raise ValueError(f"{name}: argument 'base' expects a positive number, got {call.base}")
    if call.sequence_dim not in (-2, -3) or call.q.dim() < -call.sequence_dim:
        raise ValueError(
            f"{name}: argument 'sequence_dim' expects -2 (heads before the sequence) or -3 (after"
            f" it), and 'q' as many dimensions; got {call.sequence_dim} and shape"
            f" {list(call.q.shape)}"
        )
    if call.k is not None:
        _check_k(name, call, call.k)
    _check_angles(name, call)
    _check_positions(name, call)


def _check_k(name: str, call: Rotation, k: Tensor) -> None:
    check_like(name, "k", k, "q", call.q)
    check_size(name, "k", k)
    heads = {call.q.dim() + (-3 if call.sequence_dim == -2 else -2)} if call.q.dim() > 2 else set()
    same = call.q.dim() == k.dim() and all(
        a == b
        for i, (a, b) in enumerate(zip(call.q.shape, k.shape, strict=False))
        if i not in heads
    )
    if not same:
        raise ValueError(
            f"{name}: argument 'k' expects the shape of 'q' {list(call.q.shape)} in everything but"
            f" the number of heads, got {list(k.shape)}"
        )


def _check_angles(name: str, call: Rotation) -> None:
    rotary = call.rotary_dim if call.rotary_dim is not None else 2 * call.half
    if rotary % 2 or not 2 <= rotary <= call.dim:
        raise ValueError(
            f"{name}: argument 'rotary_dim' expects an even number from 2 to {call.dim}, the last"
            f" dimension of 'q'; got {rotary}"
        )
    if (call.cos is None) != (call.sin is None):
        raise ValueError(f"{name}: arguments 'cos' and 'sin' come together; got only one")
    for argument, table in (("cos", call.cos), ("sin", call.sin)):
        if table is not None:
            check_dtype(name, argument, table, FLOATS)
            _check_table(name, argument, call, table)
    if call.frequencies is not None and len(call.frequencies) != call.half:
        raise ValueError(
            f"{name}: argument 'frequencies' expects one for each of {call.half} pairs, got"
            f" {len(call.frequencies)}"
        )


def _check_table(name: str, argument: str, call: Rotation, table: Tensor) -> None:
    tokens = list(call.tokens(call.q).shape[:2])
    own = table.dim() == 3 and list(table.shape) == [*tokens, call.half]
    if not own and not (table.dim() == 2 and table.shape[1] == call.half):
        raise ValueError(
            f"{name}: argument '{argument}' expects shape [positions, {call.half}] or"
            f" {[*tokens, call.half]} (batch, sequence, pairs), got {list(table.shape)}"
        )
    if table.device != call.q.device:
        raise ValueError(
            f"{name}: argument '{argument}' is on {table.device}, but 'q' is on {call.q.device}."
            f" Move it with .to({str(call.q.device)!r})"
        )
    last = call.offset + tokens[1]
    if call.mode == "in_sequence" and not 0 <= call.offset <= last <= table.shape[0]:
        raise ValueError(
            f"{name}: argument '{argument}' has {table.shape[0]} positions, but the call needs"
            f" {call.offset} to {last - 1}. Make longer tables"
        )


def _check_positions(name: str, call: Rotation) -> None:
    positions = call.positions
    if call.mode == "own_row" and (positions is not None or call.offset):
        raise ValueError(
            f"{name}: arguments 'cos' and 'sin' have a row a token already (three dimensions);"
            f" leave out 'positions' and 'offset', which is {call.offset}"
        )
    if positions is None:
        return
    check_dtype(name, "positions", positions, (torch.int64, torch.int32))
    batch, sequence = call.tokens(call.q).shape[:2]
    if list(positions.shape) not in ([sequence], [batch, sequence]):
        raise ValueError(
            f"{name}: argument 'positions' expects shape [{sequence}] or [{batch}, {sequence}]"
            f" (batch, sequence of 'q'), got {list(positions.shape)}"
        )
    if call.offset:
        raise ValueError(
            f"{name}: argument 'offset' is {call.offset}, but 'positions' are given. Add it to them"
        )


def check_position_values(name: str, call: Rotation) -> None:
    """Only where reading them waits for nothing; a GPU's kernel writes NaN for a wrong one."""
    table, positions = call.cos, call.positions
    if table is None or positions is None or positions.device.type != "cpu":
        return
    if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) < len(table):
        raise ValueError(
            f"{name}: argument 'positions' holds {int(positions.min())} to {int(positions.max())},"
            f" but the tables have {len(table)} rows"
        )
