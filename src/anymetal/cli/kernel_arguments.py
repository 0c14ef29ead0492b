"""Words of a command line become the arguments of a kernel.

    7   3.5   true          a number, as Python would pass it
    [1,2,3]                 a list of numbers
    float32[1024]=random    a tensor: dtype, shape, and what fills it
    half[4,8]               the same filled with zeros; Metal's names of types work too
    half[]=0.5              a tensor of no dimensions, which a kernel gets by value
    weights.npy             an array saved by numpy

What fills a tensor is zeros, ones, arange, random (normal numbers; integers from 0 to 9) or a
number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy
import torch
import typer

from anymetal.nouns import ConstantValue, Scalar

Value: TypeAlias = "torch.Tensor | bool | int | float | list[int | float]"

_TENSOR = re.compile(r"(?P<type>\w+)\[(?P<shape>[\d\s,x]*)\](?:=(?P<fill>.+))?")
_TYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint64": torch.uint64,
    "uint32": torch.uint32,
    "uint16": torch.uint16,
    "uint8": torch.uint8,
    "bool": torch.bool,
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "char": torch.int8,
    "ulong": torch.uint64,
    "uint": torch.uint32,
    "ushort": torch.uint16,
    "uchar": torch.uint8,
}
_RANDOM_INTEGERS = 10

Fill = Callable[[int, torch.Generator], torch.Tensor]
_FILLS: dict[str, Fill] = {
    "zeros": lambda count, generator: torch.zeros(count),
    "ones": lambda count, generator: torch.ones(count),
    "arange": lambda count, generator: torch.arange(count),
}


def parse_arguments(words: Sequence[str], seed: int) -> list[Value]:
    """The arguments in order; the same seed gives the same random numbers."""
    generator = torch.Generator().manual_seed(seed)
    return [parse_argument(word, generator) for word in words]


def parse_argument(word: str, generator: torch.Generator) -> Value:
    """One argument, or a message that says what can be written."""
    text = word.strip()
    match = _TENSOR.fullmatch(text)
    if match:
        return _tensor(word, match["type"], match["shape"], match["fill"] or "zeros", generator)
    if text.endswith(".npy"):
        return _saved(text)
    if text.startswith("[") and text.endswith("]"):
        return _list(word, text[1:-1])
    number = parse_number(text)
    if number is None:
        raise typer.BadParameter(
            f"--arg {word}: expected a number, [1,2,3], TYPE[SHAPE]=FILL or a .npy file"
        )
    return number


def parse_number(text: str) -> Scalar | None:
    """`7`, `0x10`, `3.5`, `-inf`, `true`; None for anything else."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def parse_constant(option: str, text: str) -> ConstantValue:
    """The value of a function constant: a number, or a vector's as `[1,2,3]`."""
    if text.startswith("[") and text.endswith("]"):
        return tuple(_constant_number(option, item.strip()) for item in text[1:-1].split(","))
    return _constant_number(option, text)


def _constant_number(option: str, text: str) -> Scalar:
    number = parse_number(text)
    if number is None:
        raise typer.BadParameter(f"{option}: {text!r} is no number, true or false")
    return number


def parse_sizes(option: str, text: str) -> tuple[int, ...]:
    """`1024`, `32,8` or `32x8x2`."""
    try:
        sizes = tuple(int(size) for size in re.split(r"[x,]", text))
    except ValueError:
        raise typer.BadParameter(f"{option} {text}: expected 1 to 3 numbers such as 32,8") from None
    if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
        raise typer.BadParameter(f"{option} {text}: expected 1 to 3 numbers such as 32,8")
    return sizes


def _tensor(
    word: str, type_name: str, shape: str, fill: str, generator: torch.Generator
) -> torch.Tensor:
    dtype = _TYPES.get(type_name)
    if dtype is None:
        raise typer.BadParameter(
            f"--arg {word}: no type {type_name}; known are {', '.join(_TYPES)}"
        )
    sizes = parse_sizes(f"--arg {word}: shape", shape) if shape.strip() else ()
    return _filled(word, fill, math.prod(sizes), dtype, generator).reshape(sizes)


def _filled(
    word: str, fill: str, count: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    if fill == "random":
        return _random(count, dtype, generator)
    if fill in _FILLS:
        return _FILLS[fill](count, generator).to(dtype)
    number = parse_number(fill)
    if number is None:
        known = ", ".join([*_FILLS, "random"])
        raise typer.BadParameter(f"--arg {word}: no filling {fill}; known are {known} and numbers")
    try:
        return torch.full((count,), number, dtype=dtype)
    except (RuntimeError, OverflowError) as error:
        raise typer.BadParameter(f"--arg {word}: {error}") from None


def _random(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    high = 2 if dtype == torch.bool else _RANDOM_INTEGERS
    return torch.randint(high, (count,), generator=generator).to(dtype)


def _list(word: str, text: str) -> list[int | float]:
    numbers = [parse_number(item.strip()) for item in text.split(",")]
    found = [number for number in numbers if number is not None]
    if len(found) != len(numbers):
        raise typer.BadParameter(f"--arg {word}: a list holds numbers, separated by commas")
    if any(isinstance(number, float) for number in found):
        return [float(number) for number in found]
    return list(found)


def _saved(file: str) -> torch.Tensor:
    if not Path(file).is_file():
        raise typer.BadParameter(f"--arg {file}: no such file")
    try:
        return torch.from_numpy(numpy.load(file))
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(f"--arg {file}: {error}") from None
