"""metal_integer against Python's integers: every function, type and vector size."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from function_model import SIZES, evaluate
from vector_model import INTEGERS, SCALARS, Array, refusal

RANDOM = 200


@dataclass(frozen=True)
class Type:
    """An integer type: how many bits, and whether one of them is a sign."""

    name: str

    @property
    def bits(self) -> int:
        return np.dtype(SCALARS[self.name]).itemsize * 8

    @property
    def signed(self) -> bool:
        return not self.name.startswith("u")

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        return self.lowest + (1 << self.bits) - 1

    def wrapped(self, value: int) -> int:
        return (value - self.lowest) % (1 << self.bits) + self.lowest

    def saturated(self, value: int) -> int:
        return min(max(value, self.lowest), self.highest)

    def pattern(self, value: int) -> str:
        """The bits, most significant first."""
        return format(value % (1 << self.bits), f"0{self.bits}b")

    def samples(self, seed: int) -> list[int]:
        """The ends of the range, small numbers, single bits and runs of ones, and random ones."""
        ends = [self.lowest, self.lowest + 1, self.highest - 1, self.highest]
        powers = [1 << shift for shift in range(self.bits)]
        patterns = [*powers, *(power - 1 for power in powers), *(-power for power in powers)]
        rng = np.random.default_rng(seed)
        anything = rng.integers(0, 256, RANDOM * self.bits // 8, np.uint8).view(SCALARS[self.name])
        values = [*ends, *range(-3, 11), *patterns, *anything.tolist()]
        return [self.wrapped(value) for value in values]


def _extract(kind: Type, x: int, offset: int, bits: int) -> int:
    field = (x >> offset) & ((1 << bits) - 1)
    negative = kind.signed and bits > 0 and field >> (bits - 1)
    return field - (1 << bits) if negative else field


def _insert(kind: Type, base: int, new: int, offset: int, bits: int) -> int:
    mask = ((1 << bits) - 1) << offset
    return kind.wrapped((base & ~mask) | ((new << offset) & mask))


def _rotate(kind: Type, x: int, count: int) -> int:
    text = kind.pattern(x)
    left = count % kind.bits
    return kind.wrapped(int(text[left:] + text[:left], 2))


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip("0"))


def _trailing(text: str) -> int:
    return len(text) - len(text.rstrip("0"))


def _median(kind: Type, x: int, y: int, z: int) -> int:
    return sorted((x, y, z))[1]


FUNCTIONS: dict[str, Callable[..., int]] = {
    "abs(x)": lambda kind, x: kind.wrapped(abs(x)),
    "clz(x)": lambda kind, x: _leading(kind.pattern(x)),
    "ctz(x)": lambda kind, x: _trailing(kind.pattern(x)),
    "popcount(x)": lambda kind, x: kind.pattern(x).count("1"),
    "reverse_bits(x)": lambda kind, x: kind.wrapped(int(kind.pattern(x)[::-1], 2)),
    "addsat(x, y)": lambda kind, x, y: kind.saturated(x + y),
    "subsat(x, y)": lambda kind, x, y: kind.saturated(x - y),
    "hadd(x, y)": lambda kind, x, y: (x + y) >> 1,
    "rhadd(x, y)": lambda kind, x, y: (x + y + 1) >> 1,
    "max(x, y)": lambda kind, x, y: max(x, y),
    "min(x, y)": lambda kind, x, y: min(x, y),
    "mulhi(x, y)": lambda kind, x, y: x * y >> kind.bits,
    "rotate(x, y)": _rotate,
    "clamp(x, min(y, z), max(y, z))": lambda kind, x, y, z: min(max(x, min(y, z)), max(y, z)),
    "madhi(x, y, z)": lambda kind, x, y, z: kind.wrapped((x * y >> kind.bits) + z),
    "madsat(x, y, z)": lambda kind, x, y, z: kind.saturated(x * y + z),
    "max3(x, y, z)": lambda kind, x, y, z: max(x, y, z),
    "min3(x, y, z)": lambda kind, x, y, z: min(x, y, z),
    "median3(x, y, z)": _median,
}


def fields(kind: Type) -> list[tuple[int, int]]:
    """Offset and size of bit fields: empty, one bit, in the middle, at the ends, the whole."""
    bits = kind.bits
    middle = [(0, 0), (3, 0), (0, 1), (2, 3)]
    return [*middle, (bits - 1, 1), (bits // 2, bits // 2), (1, bits - 1), (0, bits)]


def cases(kind: Type) -> dict[str, Callable[..., int]]:
    table = dict(FUNCTIONS)
    for offset, bits in fields(kind):
        table[f"extract_bits(x, {offset}u, {bits}u)"] = (
            lambda kind, x, offset=offset, bits=bits: _extract(kind, x, offset, bits)
        )
        table[f"insert_bits(x, y, {offset}u, {bits}u)"] = (
            lambda kind, x, y, offset=offset, bits=bits: _insert(kind, x, y, offset, bits)
        )
    return table


def arguments(text: str) -> int:
    """How many of x, y, z a call takes."""
    return 1 + max(index for index, letter in enumerate("xyz") if re.search(rf"\b{letter}\b", text))


def inputs(kind: Type) -> tuple[list[int], list[int], list[int]]:
    x, y, z = (kind.samples(seed) for seed in (1, 2, 3))
    rng = np.random.default_rng(4)
    return x, [y[i] for i in rng.permutation(len(y))], [z[i] for i in rng.permutation(len(z))]


def as_arrays(kind: Type, columns: tuple[list[int], ...]) -> tuple[Array, ...]:
    return tuple(np.array(column, SCALARS[kind.name]) for column in columns)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", INTEGERS)
def test_every_function(scalar: str, size: int) -> None:
    kind = Type(scalar)
    columns = inputs(kind)
    table = cases(kind)
    results = evaluate(scalar, size, list(table), as_arrays(kind, columns))
    for text, got in zip(table, results, strict=True):
        rows = zip(*columns[: arguments(text)], strict=True)
        assert got.tolist() == [table[text](kind, *row) for row in rows], text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", INTEGERS)
def test_absdiff_is_unsigned(scalar: str, size: int) -> None:
    kind = Type(scalar)
    x, y, _ = inputs(kind)
    unsigned = scalar if scalar.startswith("u") else f"u{scalar}"
    got = evaluate(scalar, size, ["absdiff(x, y)"], as_arrays(kind, (x, y)), unsigned)[0]
    assert got.tolist() == [abs(a - b) for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", ["int", "uint"])
def test_products_of_24_bits(scalar: str, size: int) -> None:
    kind = Type(scalar)
    low, high = (-(1 << 23), (1 << 23) - 1) if kind.signed else (0, (1 << 24) - 1)
    rng = np.random.default_rng(5)
    edges = [low, low + 1, 0, 1, high - 1, high]
    x = [*(a for a in edges for _ in edges), *rng.integers(low, high, 100).tolist()]
    y = [*(b for _ in edges for b in edges), *rng.integers(low, high, 100).tolist()]
    z = [kind.wrapped(value) for value in rng.integers(0, 1 << 32, len(x)).tolist()]
    calls = ["mul24(x, y)", "mad24(x, y, z)"]
    product, total = evaluate(scalar, size, calls, as_arrays(kind, (x, y, z)))
    assert product.tolist() == [kind.wrapped(a * b) for a, b in zip(x, y, strict=True)]
    assert total.tolist() == [kind.wrapped(a * b + c) for a, b, c in zip(x, y, z, strict=True)]


@pytest.mark.parametrize("statements", ["auto r = popcount(out[0]);", "auto r = mul24(1L, 2L);"])
def test_types_without_an_overload_are_refused(statements: str) -> None:
    assert refusal(statements) is not None
