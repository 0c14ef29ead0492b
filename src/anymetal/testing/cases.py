"""Shapes, dtypes and layouts go in; the calls that a comparison makes come out."""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

Shape = tuple[int, ...]
# One size, one shape for all arguments, a shape for each, or a text such as "m k, k n".
Shapes: TypeAlias = "str | Sequence[int | Sequence[int] | Sequence[Sequence[int]] | str]"
Make = Callable[[tuple[Shape, ...], torch.dtype, torch.Generator], Sequence[Any]]

RAGGED = (0, 1, 31, 32, 33, 257, 4099)
# Sizes of a dimension that has others beside it.
RAGGED_BESIDE = (0, 1, 31, 32, 33, 67)
LAYOUTS = ("dense", "offset", "strided", "transposed")
NORMAL, SPECIAL = "normal", "special"


@dataclass(frozen=True)
class Case:
    """One call: the same numbers whenever it is made."""

    shapes: tuple[Shape, ...]
    dtype: torch.dtype
    layout: str
    values: str
    device: torch.device
    make: Make | None = field(default=None, repr=False)

    @property
    def shape_text(self) -> str:
        texts = ["x".join(map(str, shape)) or "scalar" for shape in self.shapes]
        return texts[0] if len(set(texts)) == 1 else ", ".join(texts)

    @property
    def dtype_text(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def inputs(self) -> list[Any]:
        """Fresh arguments, of the case's layout."""
        seed = zlib.crc32(f"{self.shape_text} {self.dtype_text} {self.values}".encode())
        generator = torch.Generator().manual_seed(seed)
        if self.make is not None:
            made = list(self.make(self.shapes, self.dtype, generator))
        else:
            made = [random_tensor(shape, self.dtype, generator) for shape in self.shapes]
        if self.values == SPECIAL:
            made = [_with_specials(value) if _is_floating(value) else value for value in made]
        return [
            laid_out(value.to(self.device), self.layout)
            if isinstance(value, torch.Tensor)
            else value
            for value in made
        ]


def cases_of(
    count: int,
    shapes: Shapes | None,
    dtypes: Sequence[torch.dtype],
    layouts: Sequence[str],
    device: torch.device,
    make: Make | None,
    special: bool,
) -> list[Case]:
    """Every shape, dtype and layout; the largest shape once more with NaN and infinities."""
    for layout in layouts:
        if layout not in LAYOUTS:
            raise ValueError(f"layouts has {layout!r}; expected some of {', '.join(LAYOUTS)}")
    wanted = list(expanded(RAGGED if shapes is None else shapes, count))
    if not wanted or not dtypes or not layouts:
        raise ValueError("compare: shapes, dtypes and layouts need one entry each at least")
    found = [
        Case(one, dtype, layout, NORMAL, device, make)
        for one, dtype, layout in itertools.product(wanted, dtypes, layouts)
    ]
    largest = max(wanted, key=lambda one: sum(torch.Size(shape).numel() for shape in one))
    found += [
        Case(largest, dtype, layouts[0], SPECIAL, device, make)
        for dtype in dtypes
        if special and dtype.is_floating_point
    ]
    return found


def expanded(shapes: Shapes, count: int) -> Iterator[tuple[Shape, ...]]:
    """The shapes of all `count` arguments, for each entry."""
    for entry in [shapes] if isinstance(shapes, str) else shapes:
        if isinstance(entry, str):
            yield from _of_names(entry, count)
        elif isinstance(entry, int):
            yield ((entry,),) * count
        else:
            sizes = tuple(size for size in entry if isinstance(size, int))
            if len(sizes) == len(entry):
                yield (sizes,) * count
            else:
                each = tuple(tuple(shape) for shape in entry if not isinstance(shape, int))
                yield _checked(each, entry, count)


def argument_count(function: Callable[..., Any]) -> int:
    """How many tensors a reference takes: its parameters without defaults; 1 where it hides
    them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return len(needed) or 1


def random_tensor(
    shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Normal numbers; integers from -9 to 9, or from 0 where there are no others."""
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), generator=generator).to(dtype)
    if dtype is torch.bool:
        return torch.randint(2, tuple(shape), generator=generator).bool()
    low = -9 if dtype.is_signed else 0
    return torch.randint(low, 10, tuple(shape), generator=generator).to(dtype)


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers otherwise in memory; what lies between them is NaN or a large number."""
    if tensor.dim() == 0 or layout == "dense":
        return tensor
    if layout == "transposed":
        if tensor.dim() < 2:
            return tensor
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "offset":
        around = _sentinels((tensor.numel() + 2,), tensor)
        view = around[1 : 1 + tensor.numel()].view(tensor.shape)
    else:
        around = _sentinels((*tensor.shape[:-1], 2 * tensor.shape[-1]), tensor)
        view = around[..., ::2]
    return view.copy_(tensor)


def _of_names(text: str, count: int) -> Iterator[tuple[Shape, ...]]:
    """`m k, k n`: each name goes through the ragged sizes, each beginning elsewhere."""
    patterns = [part.split() for part in text.split(",")]
    names = list(dict.fromkeys(n for part in patterns for n in part if not n.isdigit()))
    sizes = RAGGED if len(names) == 1 else RAGGED_BESIDE
    for start in range(len(sizes)):
        value = {name: sizes[(start + 2 * i) % len(sizes)] for i, name in enumerate(names)}
        found = tuple(tuple(int(n) if n.isdigit() else value[n] for n in part) for part in patterns)
        yield _checked(found, text, count)


def _checked(found: tuple[Shape, ...], entry: object, count: int) -> tuple[Shape, ...]:
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise ValueError(
            f"compare: the shape {entry!r} is for {len(found)} arguments, but the reference takes"
            f" {count}"
        )
    return found


def _sentinels(shape: Shape, like: torch.Tensor) -> torch.Tensor:
    value = torch.nan if like.is_floating_point() else 1
    return torch.full(shape, value, dtype=like.dtype, device=like.device)


def _is_floating(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _with_specials(tensor: torch.Tensor) -> torch.Tensor:
    """NaN, both infinities and both zeros in the places 0, 7, 14 ... of a copy."""
    flat = tensor.reshape(-1).clone()
    specials = (torch.nan, torch.inf, -torch.inf, 0.0, -0.0)
    for number, value in enumerate(specials):
        if 7 * number < flat.numel():
            flat[7 * number] = value
    return flat.view(tensor.shape)
