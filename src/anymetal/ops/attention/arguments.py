"""The arguments of attention: what they must be, and as kernels see them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from anymetal.ops.declare import FLOATS
from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size

NAME = "scaled_dot_product_attention"
MOST_WIDTH = 256
# More than any position: no limit. Positions are counted in 32 bits.
UNLIMITED = 1 << 40
MOST_OFFSET = 1 << 30

Tensor = torch.Tensor
Optional = torch.Tensor | None


@dataclass(frozen=True)
class Call:
    """One call of the operator: dimensions are batch (any number), heads, sequence, elements."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Optional = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    window: int | None = None
    softcap: float | None = None
    alibi_slopes: Optional = None
    sinks: Optional = None
    offset: int = 0

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(self.query.shape[:-3])

    @property
    def samples(self) -> int:
        return math.prod(self.batch)

    @property
    def heads(self) -> int:
        return self.query.shape[-3] if self.query.dim() > 2 else 1

    @property
    def key_heads(self) -> int:
        return self.key.shape[-3] if self.key.dim() > 2 else 1

    @property
    def queries(self) -> int:
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        return self.key.shape[-2]

    @property
    def width(self) -> int:
        return self.query.shape[-1]

    @property
    def value_width(self) -> int:
        return self.value.shape[-1]

    @property
    def score_shape(self) -> tuple[int, ...]:
        return (*self.query.shape[:-1], self.keys)

    @property
    def factor(self) -> float:
        """What products of queries and keys are multiplied with."""
        return self.scale if self.scale is not None else max(self.width, 1) ** -0.5

    @property
    def before(self) -> int:
        """How many keys before a query's own position it sees."""
        return self.window - 1 if self.window is not None else UNLIMITED

    @property
    def after(self) -> int:
        return 0 if self.is_causal else self.before

    def sees(self) -> Optional:
        """Which query sees which key by their positions, as a mask; None where all see all."""
        if not self.is_causal and self.window is None:
            return None
        distance = self.distance()
        return (distance >= -self.after) & (distance <= self.before)

    def distance(self) -> Tensor:
        """How far each key lies before each query."""
        device = self.query.device
        positions = torch.arange(self.queries, device=device) + self.offset
        return positions[:, None] - torch.arange(self.keys, device=device)


def like_query(call: Call) -> Tensor:
    """Room for a result: heads and sequence in memory as they are in the query."""
    query = call.query
    shape = (*query.shape[:-1], call.value_width)
    if query.dim() > 2 and not query.is_contiguous() and query.transpose(-2, -3).is_contiguous():
        swapped = (*shape[:-3], shape[-2], shape[-3], shape[-1])
        return query.new_empty(swapped).transpose(-2, -3)
    return query.new_empty(shape)


# --- checks ---------------------------------------------------------------------------------------


def check(name: str, call: Call) -> None:
    """Everything a kernel relies on; raises with the values it found."""
    check_dtype(name, "query", call.query, FLOATS)
    for argument in ("query", "key", "value"):
        tensor = getattr(call, argument)
        check_like(name, argument, tensor, "query", call.query)
        check_size(name, argument, tensor)
    _check_shapes(name, call)
    _check_heads(name, call)
    _check_numbers(name, call)
    if call.attn_mask is not None:
        _check_mask(name, call, call.attn_mask)
    if call.alibi_slopes is not None:
        _check_slopes(name, call, call.alibi_slopes)
    if call.sinks is not None:
        _check_vector(name, "sinks", call, call.sinks)
        check_shape(name, "sinks", call.sinks, [call.heads], "one for each head of 'query'")


def _check_shapes(name: str, call: Call) -> None:
    shape = list(call.query.shape)
    if len(shape) < 2:
        raise ValueError(f"{name}: argument 'query' expects at least 2 dimensions, got {shape}")
    for argument, tensor in (("key", call.key), ("value", call.value)):
        if tensor.dim() != len(shape) or tensor.shape[:-3] != call.query.shape[:-3]:
            raise ValueError(
                f"{name}: argument '{argument}' expects the batch dimensions of 'query'"
                f" {shape[:-3]} and {len(shape)} dimensions, got shape {list(tensor.shape)}"
            )
    if call.key.shape[-1] != call.width:
        raise ValueError(
            f"{name}: argument 'key' expects a last dimension of {call.width}, that of 'query', got"
            f" {list(call.key.shape)}"
        )
    if call.key.shape[:-1] != call.value.shape[:-1]:
        raise ValueError(
            f"{name}: argument 'value' expects shape {[*call.key.shape[:-1], 'any']}, that of 'key'"
            f" but for the last dimension, got {list(call.value.shape)}"
        )
    if max(call.width, call.value_width) > MOST_WIDTH:
        raise ValueError(
            f"{name}: heads of at most {MOST_WIDTH} elements are supported, got {call.width} for"
            f" 'query' and {call.value_width} for 'value'. Split the value's last dimension, or use"
            " torch's own"
        )


def _check_heads(name: str, call: Call) -> None:
    if call.key_heads == call.heads:
        return
    if not call.enable_gqa:
        raise ValueError(
            f"{name}: argument 'key' expects {call.heads} heads, those of 'query', got"
            f" {call.key_heads}. Pass enable_gqa=True to share them among queries"
        )
    if not call.key_heads or call.heads % call.key_heads:
        raise ValueError(
            f"{name}: argument 'key' expects a number of heads that divides {call.heads}, that of"
            f" 'query', got {call.key_heads}"
        )


def _check_numbers(name: str, call: Call) -> None:
    if call.dropout_p != 0.0:
        raise ValueError(
            f"{name}: argument 'dropout_p' expects 0.0, got {call.dropout_p}: dropout is not"
            " supported. Use torch's own, or drop elements of the result"
        )
    if call.window is not None and call.window < 1:
        raise ValueError(f"{name}: argument 'window' expects 1 or more keys, got {call.window}")
    if call.softcap is not None and not call.softcap > 0.0:
        raise ValueError(
            f"{name}: argument 'softcap' expects a number above 0, or None for no cap; got"
            f" {call.softcap}"
        )
    if not -MOST_OFFSET <= call.offset <= MOST_OFFSET:
        raise ValueError(
            f"{name}: argument 'offset' expects {-MOST_OFFSET} to {MOST_OFFSET}, got {call.offset}"
        )


def _check_mask(name: str, call: Call, mask: Tensor) -> None:
    check_dtype(name, "attn_mask", mask, (torch.bool, call.query.dtype, torch.float32))
    _check_device(name, "attn_mask", call, mask)
    full = call.score_shape
    pairs = zip(reversed(mask.shape), reversed(full), strict=False)
    fits = all(size in (1, whole) for size, whole in pairs)
    if not fits or not 2 <= mask.dim() <= len(full):
        raise ValueError(
            f"{name}: argument 'attn_mask' expects a shape that can be broadcast to {list(full)}"
            f" (batch, heads, queries, keys), got {list(mask.shape)}"
        )


def _check_slopes(name: str, call: Call, slopes: Tensor) -> None:
    _check_vector(name, "alibi_slopes", call, slopes)
    if list(slopes.shape) not in ([call.heads], [*call.batch, call.heads]):
        raise ValueError(
            f"{name}: argument 'alibi_slopes' expects shape {[call.heads]} or"
            f" {[*call.batch, call.heads]} (batch, heads of 'query'), got {list(slopes.shape)}"
        )


def _check_vector(name: str, argument: str, call: Call, tensor: Tensor) -> None:
    check_dtype(name, argument, tensor, (torch.float32, call.query.dtype))
    _check_device(name, argument, call, tensor)


def _check_device(name: str, argument: str, call: Call, tensor: Tensor) -> None:
    if tensor.device != call.query.device:
        raise ValueError(
            f"{name}: argument '{argument}' is on {tensor.device}, but 'query' is on"
            f" {call.query.device}. Move it with .to({str(call.query.device)!r})"
        )


# --- as kernels see it ----------------------------------------------------------------------------


def four_dimensions(tensor: Tensor) -> Tensor:
    """Batch, heads, sequence, elements; a copy only where batch dimensions cannot be one."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor.flatten(0, -4)


def rows_in_memory(tensor: Tensor) -> Tensor:
    """In four dimensions, with rows whose elements stand side by side: copied where they do not."""
    tensor = four_dimensions(tensor)
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def full_mask(call: Call) -> Optional:
    """The mask in four dimensions, its missing ones with strides of 0."""
    if call.attn_mask is None:
        return None
    return four_dimensions(call.attn_mask.expand(call.score_shape))


def dense_slopes(call: Call) -> Optional:
    """A slope for each head of each sample."""
    if call.alibi_slopes is None:
        return None
    return call.alibi_slopes.float().expand(*call.batch, call.heads).contiguous()


def dense_sinks(call: Call) -> Optional:
    return None if call.sinks is None else call.sinks.float().contiguous()
