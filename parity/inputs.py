"""What a kernel is given: bytes for each buffer, made from its argument table, and a grid.

Both of a pair get the same bytes, and whole buffers are compared afterwards. Sizes, strides and
shapes come from their names; all buffers lie in one block of memory with room between them, so that
an index that these guesses make too large stays inside it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anymetal.nouns import Argument, Field

_ROOM = 1 << 20  # bytes of a buffer, and as many before and behind it
_ELEMENTS = 1 << 15
_SHAPE = (2, 5, 8)
_STRIDES = (40, 8, 1)
_SPECIAL = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, float("inf"), float("-inf"), float("nan")),
    *(1e-40, -1e-45, 6e-8, 65504.0, 3.3e38, -3.3e38, 2.0**31, -(2.0**63), 1e-30, 88.8),
)
# Numbers by the names of arguments and fields: the first that fits.
_NUMBERS = (
    (r"ndims?|nc_dim|.*_ndims?", 1),
    (r".*(n_tiles|tiles_n|tiles_m|NQ|NK|gqa.*|num_heads|H|B)", 1),
    (r"axis_size|size|n|N_kv|size_sorted_axis|reduction_size|in_size", 97),
    (r"in_vec_size|K", 512),
    (r"gemm_k_iterations.*|NK.*|.*iterations.*", 2),
    (r"out_vec_size|N|ldb|ldd|ldc|lda|.*_ld|marix_ld", 64),
    (r"M|qL|kL|.*rows.*", 32),
    (r"row_size", 64),
    (r"non_(row|col)_reductions|out_size|blocks|swizzle.*|batch.*|D|.*_dim", 2),
    (r"in_stride_sorted_axis|out_stride_sorted_axis|.*stride.*", 1),
    (r".*offset.*|.*mask.*", 0),
)
_INDEX = re.compile(r".*(indices|idx|idxs|offsets|partitions).*")
_POSITIONS = ("thread_position_in_grid", "threads_per_grid")


@dataclass(frozen=True)
class Call:
    """The arguments of a launch, and its shape."""

    arguments: list[torch.Tensor]
    written: list[int]  # the buffers that may be written
    threads: tuple[int, ...]
    group_size: tuple[int, ...]


def make_call(kernel: str, table: Sequence[Argument], limit: int) -> Call:
    """A launch of a kernel; the same for the same name."""
    generator = torch.Generator().manual_seed(zlib.crc32(kernel.encode()))
    buffers = [one for one in table if one.role == "buffer"]
    builtins = [one for one in table if one.role == "builtin"]
    is_elementwise = all(one.builtin in _POSITIONS for one in builtins)
    count = max((one.index or 0 for one in buffers), default=0) + 1
    block = torch.zeros((2 * count + 1) * _ROOM, dtype=torch.uint8)
    arguments = [block[(2 * n + 1) * _ROOM : (2 * n + 2) * _ROOM] for n in range(count)]
    for one in buffers:
        place = arguments[one.index or 0]
        content = _content(one, generator, special=is_elementwise)
        place[: content.numel()] = content
    written = [one.index or 0 for one in buffers if not one.is_const]
    threads, group = _shape(builtins, is_elementwise, limit)
    return Call(arguments, written, threads, group)


def _shape(
    builtins: Sequence[Argument], is_elementwise: bool, limit: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if is_elementwise:
        types = {one.type for one in builtins if one.builtin == "thread_position_in_grid"}
        if types & {"uint3", "ushort3"}:
            return (8, 5, 2), (8, 5, 2)
        if types & {"uint2", "ushort2"}:
            return (13, 7), (13, 7)
        return (97,), (32,)
    size = limit if limit < 1024 else 64
    return (2 * size, 2, 1), (size, 1, 1)


def _content(one: Argument, generator: torch.Generator, *, special: bool) -> torch.Tensor:
    """The bytes of a buffer."""
    if one.fields:
        return _structure(one.fields, one.element_size)
    if one.is_const and _is_integer(one.type) and (one.space == "constant" or not one.is_pointer):
        return _numbers(one.name, one.type, one.is_pointer)
    if one.space == "constant" and not one.is_pointer:
        return _as_bytes(torch.full((2,), 0.5), one.type)
    if not one.is_const:
        return torch.full((_ROOM,), 0xA5 if one.type != "bool" else 1, dtype=torch.uint8)
    return _filled(one, generator, special=special)


def _filled(one: Argument, generator: torch.Generator, *, special: bool) -> torch.Tensor:
    if one.type == "bool":
        return torch.randint(0, 2, (_ELEMENTS,), generator=generator, dtype=torch.uint8)
    if _INDEX.fullmatch(one.name):
        small = torch.randint(0, 4, (_ELEMENTS,), generator=generator)
        return _as_bytes(small, one.type)
    if _is_integer(one.type):
        bits = torch.randint(0, 256, (_ELEMENTS * one.element_size,), generator=generator)
        found = bits.to(torch.uint8)
        if special:  # small numbers too: powers and shifts need them
            small = torch.randint(-3, 40, (_ELEMENTS // 2,), generator=generator)
            part = _as_bytes(small, one.type)
            found[: part.numel() // 2] = part[: part.numel() // 2]
        return found
    numbers = torch.randn(_ELEMENTS, generator=generator)
    if special:
        numbers *= torch.randint(0, 12, (_ELEMENTS,), generator=generator).float()
        where = torch.randint(0, 2 * len(_SPECIAL), (_ELEMENTS,), generator=generator)
        table = torch.tensor(_SPECIAL)
        is_special = where < len(_SPECIAL)
        numbers[is_special] = table[where[is_special]]
    return _as_bytes(numbers, one.type)


def _numbers(name: str, type_: str, is_pointer: bool) -> torch.Tensor:
    """A number, or the shape or strides of an array of three dimensions."""
    if is_pointer:
        values = _STRIDES if "stride" in name else _SHAPE
        return _as_bytes(torch.tensor((*values, 1, 1, 1, 1, 1)), type_)
    if name == "ndim":
        return _as_bytes(torch.tensor((3, 0)), type_)
    return _as_bytes(torch.tensor((_number(name), 0)), type_)


def _number(name: str) -> int:
    return next((value for pattern, value in _NUMBERS if re.fullmatch(pattern, name)), 1)


def _structure(fields: Sequence[Field], size: int) -> torch.Tensor:
    data = torch.zeros(size, dtype=torch.uint8)
    for one in fields:
        if one.fields:
            continue
        number = torch.tensor([_number(one.name)] * max(one.shape[0] if one.shape else 1, 1))
        if not _is_integer(one.type):
            number = number.float() * 0.5
        content = _as_bytes(number, one.type)[: size - one.offset]
        data[one.offset : one.offset + content.numel()] = content
    return data


_DTYPES = {
    "char": torch.int8,
    "signed char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.uint8,
    "short": torch.int16,
    "ushort": torch.int16,
    "int": torch.int32,
    "uint": torch.int32,
    "long": torch.int64,
    "ulong": torch.int64,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
}


def dtype_of(type_: str) -> torch.dtype:
    """The dtype whose bytes a type has; float for all that is made of floats."""
    return _DTYPES.get(type_, torch.float32)


def _is_integer(type_: str) -> bool:
    return not dtype_of(type_).is_floating_point


def _as_bytes(values: torch.Tensor, type_: str) -> torch.Tensor:
    found = values.to(dtype_of(type_)).contiguous().view(torch.uint8)
    return found[:_ROOM]
