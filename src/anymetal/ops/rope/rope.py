"""Rotary position embedding of q and k: from tables, or from a base and an offset."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from anymetal.launch.constants import lasting_tensor
from anymetal.ops.declare import (
    AnyOperator,
    Call,
    Case,
    Cost,
    Gradients,
    operator,
    variants,
)
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import aligned, group_shape
from anymetal.ops.rope.rotation import BASE, Rotation, check, check_position_values
from anymetal.policy.policy import choose

SOURCE = "rope.metal"

Tensor = torch.Tensor
Optional = torch.Tensor | None


# --- launch ---------------------------------------------------------------------------------------


def _room(call: Rotation) -> tuple[Tensor, Tensor]:
    return _like(call.q), _like(call.k) if call.k is not None else call.q.new_empty(0)


def _run(
    operator: AnyOperator, call: Rotation, turned: tuple[Tensor, Tensor], direction: float
) -> None:
    turned_q, turned_k = turned
    q, k = _dense_last(call.q), None if call.k is None else _dense_last(call.k)
    if turned_q.numel() or turned_k.numel():
        given = [q, q if k is None else k, turned_q, turned_q if k is None else turned_k]
        _launch(operator, call, [call.tokens(tensor) for tensor in given], k is not None, direction)


def _launch(
    operator: AnyOperator, call: Rotation, tensors: list[Tensor], has_k: bool, direction: float
) -> None:
    angles, first, second = _tables(call)
    dtype_name = variants.DTYPE_NAMES[call.q.dtype]
    device = call.q.device
    choice = choose(operator.name, dtype_name, "any", device.type, "elementwise")
    width = _width(call, [*tensors, first, second])
    variants.record(operator.name, call.q.dtype, "elementwise", width)
    batch, sequence, q_heads, dim = tensors[0].shape
    k_heads = tensors[1].shape[2] if has_k else 0
    heads = choice.values["heads_per_thread"]
    items = (dim - call.half) // width
    ids = _ids(call)
    threads = (items, batch * sequence, -(-(q_heads + k_heads) // heads))
    numbers = {
        "sequence": sequence,
        "q_heads": q_heads,
        "k_heads": k_heads,
        "dim": dim,
        "half_dim": call.half,
        "heads": heads,
        "positions": call.mode,
        "direction": direction,
        "offset": call.offset,
        "rows": first.numel() // call.half,
        **dict(zip(("q", "k", "turned_q", "turned_k"), map(_strides, tensors), strict=True)),
    }
    kernel = "_".join(
        (
            "rope",
            "interleaved" if call.interleaved else "split",
            angles,
            "scalar" if width == 1 else f"vec{width}",
            SUFFIXES[call.q.dtype],
        )
    )
    operator.kernels.kernel(kernel, device)(
        *tensors, first, second, ids, numbers,
        threads=threads,
        group_size=(*group_shape(threads[:2], choice.group_size), 1),
    )  # fmt: skip


def _strides(tensor: Tensor) -> dict[str, int]:
    sample, token, head, _ = tensor.stride()
    return {"sample": sample, "token": token, "head": head}


def _ids(call: Rotation) -> Tensor:
    if call.positions is None:
        return torch.empty(1, dtype=torch.int64, device=call.q.device)
    return call.positions.to(call.q.device, torch.int64).contiguous()


def _tables(call: Rotation) -> tuple[str, Tensor, Tensor]:
    """cos and sin, or the frequencies in turns as sums of two floats; and what kernels call them.
    Tables of another dtype than q's become floats."""
    if call.cos is None or call.sin is None:
        return "base", *_turns(tuple(call.inverse_frequencies()), call.q.device)
    if call.cos.dtype == call.sin.dtype == call.q.dtype:
        return "tables", call.cos.contiguous(), call.sin.contiguous()
    words = "tables" if call.q.dtype == torch.float32 else "float_tables"
    return words, call.cos.float().contiguous(), call.sin.float().contiguous()


@functools.lru_cache(maxsize=64)
def _turns(frequencies: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    turns = torch.tensor(frequencies, dtype=torch.float64, device="cpu") / (2 * math.pi)
    high = turns.float()
    low = (turns - high.double()).float()
    return lasting_tensor(high, device), lasting_tensor(low, device)


def _width(call: Rotation, tensors: list[Tensor]) -> int:
    """4 where pairs and the elements that are copied come in aligned fours."""
    even = call.half % 4 == 0 and call.dim % 4 == 0
    strides = [stride for tensor in tensors for stride in tensor.stride()[:-1]]
    if even and all(s % 4 == 0 for s in strides) and all(map(aligned, tensors)):
        return 4
    return 1


def _dense_last(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _like(tensor: Tensor) -> Tensor:
    """Room for a result: heads and sequence in memory as they are in the input."""
    if 2 < tensor.dim() <= 4 and not tensor.is_contiguous():
        swapped = tensor.transpose(-2, -3)
        if swapped.is_contiguous():
            dense = torch.empty_like(swapped, memory_format=torch.contiguous_format)
            return dense.transpose(-2, -3)
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


# --- reference, cases and cost --------------------------------------------------------------------


def token_tables(call: Rotation, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of each token, as batch (or 1), sequence, 1, pairs: with torch's operators."""
    cos, sin = call.cos, call.sin
    sequence = call.tokens(call.q).shape[1]
    device = call.q.device
    if cos is None or sin is None:
        positions = call.positions
        if positions is None:
            positions = torch.arange(call.offset, call.offset + sequence, device=device)
        frequencies = torch.tensor(call.inverse_frequencies(), dtype=dtype, device=device)
        angles = positions.to(dtype)[..., None] * frequencies
        cos, sin = angles.cos(), angles.sin()
    elif call.mode == "in_sequence":
        cos, sin = (t[call.offset : call.offset + sequence] for t in (cos, sin))
    elif call.positions is not None:
        cos, sin = cos[call.positions], sin[call.positions]
    cos, sin = (t if t.dim() == 3 else t[None] for t in (cos, sin))
    return cos[:, :, None], sin[:, :, None]


def _reference(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    return _turned(Rotation(*args, **kwargs), 1.0)


def _reference_backward(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    return _turned(Rotation(*args, **kwargs), -1.0)


def _turned(call: Rotation, direction: float) -> tuple[Tensor, Tensor]:
    exact = torch.float64 if call.q.dtype == torch.float64 else torch.float32
    cos, sin = (t.to(call.q.dtype) for t in token_tables(call, exact))
    q = _turn(call, call.q, cos, direction * sin)
    k = _turn(call, call.k, cos, direction * sin) if call.k is not None else call.q.new_empty(0)
    return q, k


def _pairs(call: Rotation, tokens: Tensor) -> tuple[Tensor, Tensor]:
    if call.interleaved:
        return tokens[..., 0 : 2 * call.half : 2], tokens[..., 1 : 2 * call.half : 2]
    return tokens[..., : call.half], tokens[..., call.half : 2 * call.half]


def _turn(call: Rotation, tensor: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    tokens = call.tokens(tensor)
    a, b = _pairs(call, tokens)
    first, second = a * cos - b * sin, b * cos + a * sin
    if call.interleaved:
        turned = torch.stack((first, second), -1).flatten(-2)
    else:
        turned = torch.cat((first, second), -1)
    result = torch.cat((turned, tokens[..., 2 * call.half :]), -1)
    if call.sequence_dim == -2:
        result = result.transpose(1, 2)
    return result.reshape(tensor.shape)


def _case(
    q: tuple[int, ...],
    k: tuple[int, ...] | None = None,
    table: tuple[int, ...] | None = None,
    ids: tuple[int, ...] | None = None,
    **options: Any,
) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        tensors = [
            torch.randn(shape, generator=generator).to(dtype).to(device) if shape else None
            for shape in (q, k)
        ]
        tables: list[Any] = [None, None]
        if table is not None:
            angles = 6.0 * torch.rand(table, generator=generator)
            tables = [t.to(dtype).to(device) for t in (angles.cos(), angles.sin())]
        positions = None
        if ids is not None:
            most = table[0] if table is not None else 5000
            positions = torch.randint(0, most, ids, generator=generator).to(device)
        return [*tensors, *tables, positions], dict(options)

    words = ["q " + "x".join(map(str, q))]
    named = {"k": k, "tables": table, "ids": ids}
    words += [f"{n} {'x'.join(map(str, s))}" for n, s in named.items() if s is not None]
    return Case(" ".join(words + [f"{n}={v}" for n, v in options.items()]), make)


def _cost(q: Tensor, k: Optional = None, *_: Any, **__: Any) -> Cost:
    each = q.nbytes + (0 if k is None else k.nbytes)
    return Cost(read=each, write=each)


_CASES = (
    _case((0, 2, 3, 8)),
    _case((1, 2), base=100.0),
    _case((31, 32), offset=7),
    _case((2, 4, 33, 16), (2, 2, 33, 16)),
    _case((2, 4, 5, 24), (2, 1, 5, 24), ids=(2, 5), interleaved=True, rotary_dim=16),
    _case((2, 6, 3, 14), ids=(3,), rotary_dim=6),
    _case((2, 7, 3, 16), (2, 7, 1, 16), (9, 8), sequence_dim=-3),
    _case((1, 2, 5, 12), (1, 2, 5, 12), (11, 6), (1, 5), interleaved=True),
    _case((2, 2, 4, 16), (2, 2, 4, 16), (2, 4, 4), rotary_dim=8),
)
_BENCH = (
    _case((1, 32, 1024, 128), (1, 8, 1024, 128), (1024, 64)),
    _case((1, 32, 1024, 128), (1, 8, 1024, 128)),
)


@operator(
    source=SOURCE,
    reference=_reference,
    cases=_CASES,
    bench=_BENCH,
    cost=_cost,
    results=("turned_q", "turned_k"),
)
def _rope(
    q: Tensor,
    k: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    base: float = BASE,
    offset: int = 0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    sequence_dim: int = -2,
    frequencies: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    call = Rotation(**locals())
    check("rope", call)
    return _room(call)


@_rope.run
def _(turned: tuple[Tensor, Tensor], *args: Any) -> None:
    call = Rotation(*args)
    check_position_values("rope", call)
    _run(_rope, call, turned, 1.0)


@operator(
    source=SOURCE,
    reference=_reference_backward,
    cases=[_CASES[0], *_CASES[3:5]],
    bench=_BENCH,
    cost=_cost,
    no_gradient="rope can be differentiated once",
)
def _rope_backward(
    grad_q: Tensor,
    grad_k: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    base: float = BASE,
    offset: int = 0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    sequence_dim: int = -2,
    frequencies: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    call = Rotation(*locals().values())
    check("rope_backward", call)
    return _room(call)


@_rope_backward.run
def _(turned: tuple[Tensor, Tensor], *args: Any) -> None:
    _run(_rope_backward, Rotation(*args), turned, -1.0)


# --- gradient -------------------------------------------------------------------------------------


def _learns_tables(values: Mapping[str, Any]) -> bool:
    tables = (values["cos"], values["sin"])
    return any(table is not None and table.requires_grad for table in tables)


@_rope.backward(
    keep=["cos", "sin", "positions"], keep_where={"q": _learns_tables, "k": _learns_tables}
)
def _(call: Call, grad_q: Tensor, grad_k: Tensor) -> Gradients:
    options = [getattr(call, name) for name in _rope.names[2:]]
    turned = Rotation(grad_q, grad_k if call.has("k") else None, *options)
    dq, dk = _rope_backward(turned.q, turned.k, *options)
    found = {"q": dq, "k": dk if call.has("k") else None}
    if call.needs("cos", "sin"):
        found["cos"], found["sin"] = _table_gradients(turned, call.q, call.k)
    return found


def _table_gradients(call: Rotation, q: Tensor, k: Optional) -> tuple[Tensor, Tensor]:
    """The gradients of learned tables, which nobody learns in a hurry: torch's operators do it."""
    dcos = dsin = torch.zeros((), device=q.device)
    for grad, tensor in ((call.q, q), (call.k, k)):
        if grad is None or tensor is None:
            continue
        da, db = (t.float() for t in _pairs(call, call.tokens(grad)))
        a, b = (t.float() for t in _pairs(call, call.tokens(tensor)))
        dcos = dcos + (da * a + db * b).sum(2)
        dsin = dsin + (db * a - da * b).sum(2)
    return _to_table(call, call.cos, dcos), _to_table(call, call.sin, dsin)


def _to_table(call: Rotation, table: Optional, tokens: Tensor) -> Tensor:
    """Gradients of tokens, added up in the rows that the tokens came from."""
    assert table is not None
    if call.mode == "own_row":
        return tokens.to(table.dtype)
    batch, sequence = tokens.shape[:2]
    rows = call.positions
    if rows is None:
        rows = torch.arange(call.offset, call.offset + sequence, device=tokens.device)
    rows = rows.expand(batch, sequence).reshape(-1)
    blank = torch.zeros(table.shape, dtype=tokens.dtype, device=tokens.device)
    return blank.index_add(0, rows, tokens.flatten(0, 1)).to(table.dtype)


# --- public function ------------------------------------------------------------------------------


def rope(
    q: Tensor,
    k: Optional = None,
    cos: Optional = None,
    sin: Optional = None,
    *,
    positions: Optional = None,
    base: float = BASE,
    offset: int = 0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    sequence_dim: int = -2,
    frequencies: Sequence[float] | None = None,
) -> Any:
    """q, or q and k, with pairs of their elements turned by angles of their positions.

    Tensors are [..., heads, sequence, dim], or with `sequence_dim=-3` [..., sequence, heads, dim];
    k may have fewer heads. Token i has position `offset + i`, or the i-th of `positions` (one list,
    or one a sample). Angles are position * base ** (-2 i / rotary_dim), or position *
    frequencies[i]; or `cos` and `sin` hold them: [positions, pairs], or a row a token as [batch,
    sequence, pairs]. Tables may also be twice as wide, each angle in both places of its pair.
    """
    given = (q, k, cos, sin, positions, base, offset, rotary_dim, interleaved, sequence_dim)
    call = _with_narrow_tables(Rotation(*given, frequencies))
    turned_q, turned_k = _rope(*(getattr(call, field.name) for field in fields(call)))
    return turned_q if k is None else (turned_q, turned_k)


def _with_narrow_tables(call: Rotation) -> Rotation:
    """Tables with one column a pair, and for tokens of all samples where they have one for all."""
    cos, sin = call.cos, call.sin
    if cos is None or sin is None:
        return call
    rotary = call.rotary_dim if call.rotary_dim is not None else call.dim
    narrow = []
    for table in (cos, sin):
        kept = table
        if table.dim() >= 2 and table.shape[-1] == rotary:
            kept = table[..., ::2] if call.interleaved else table[..., : rotary // 2]
        if kept.dim() == 3 and kept.shape[0] == 1 and call.positions is None and not call.offset:
            kept = kept[0]
        narrow.append(kept)
    return replace(call, cos=narrow[0], sin=narrow[1])
