"""The types of the fuzzer's language, and what each operator and function gives for them.

Integers wrap around and floating point rounds after every operation, as the headers say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SCALARS: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "char": np.dtype(np.int8),
    "uchar": np.dtype(np.uint8),
    "short": np.dtype(np.int16),
    "ushort": np.dtype(np.uint16),
    "int": np.dtype(np.int32),
    "uint": np.dtype(np.uint32),
    "long": np.dtype(np.int64),
    "ulong": np.dtype(np.uint64),
    "half": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "bfloat": np.dtype(np.float32),  # of which only the upper 16 bits are ever set
}
FLOATS = ("half", "bfloat", "float")
SMALL = ("char", "uchar", "short", "ushort")
INTEGERS = (*SMALL, "int", "uint", "long", "ulong")
LETTERS = "xyzw"


class Unsuitable(Exception):
    """The kernel leaves what the model says exactly: an infinity, say. Not a fault of an engine."""


def split(name: str) -> tuple[str, int]:
    """The scalar type and the number of components: float4 is (float, 4), float is (float, 1)."""
    if name[-1] in "234":
        return name[:-1], int(name[-1])
    return name, 1


def element(name: str) -> str:
    return split(name)[0]


def width(name: str) -> int:
    return split(name)[1]


def dtype(name: str) -> np.dtype[Any]:
    return SCALARS[element(name)]


def is_float(name: str) -> bool:
    return element(name) in FLOATS


def is_integer(name: str) -> bool:
    return element(name) in INTEGERS


def is_signed(name: str) -> bool:
    return dtype(name).kind == "i"


def bits(name: str) -> int:
    return dtype(name).itemsize * 8


def to_bfloat(values: Array) -> Array:
    """Rounds to nearest, ties to even."""
    raw = values.astype(np.float32).view(np.uint32)
    odd = (raw >> np.uint32(16)) & np.uint32(1)
    rounded = (raw + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def convert(values: Array, name: str) -> Array:
    """As a cast does it: floats are cut off and saturate, integers keep their low bits."""
    target = dtype(name)
    if element(name) == "bfloat":
        return to_bfloat(values)
    if values.dtype == target:
        return values
    if target.kind == "b":
        return values != 0
    with np.errstate(all="ignore"):
        if values.dtype.kind == "f" and target.kind in "iu":
            limits = np.iinfo(target)
            whole = np.trunc(values.astype(np.float64))
            inside = np.clip(np.nan_to_num(whole), float(limits.min), float(limits.max))
            if target.itemsize < 8:
                return inside.astype(target)
            # 2^63 - 1 is no float64: what reaches it saturates by itself.
            high = inside >= float(limits.max)
            return np.where(high, limits.max, np.where(high, 0, inside).astype(target)).astype(
                target
            )
        return values.astype(target)


def binary(operator: str, name: str, left: Array, right: Array) -> Array:
    """The operator in the type C++ promotes to, then the type itself again."""
    with np.errstate(all="ignore"):
        if element(name) in SMALL:
            wide = _integer(operator, left.astype(np.int32), right.astype(np.int32))
            return wide.astype(dtype(name))
        if is_float(name):
            return convert(_FLOAT[operator](left, right), name)
        return _integer(operator, left, right)


_FLOAT = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
_PLAIN = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
}


def _integer(operator: str, left: Array, right: Array) -> Array:
    if operator in _PLAIN:
        return _PLAIN[operator](left, right)
    safe = np.where(right == 0, 1, right).astype(right.dtype)
    rest = np.fmod(left, safe)
    if operator == "%":
        return rest
    return (left - rest) // safe


COMPARISONS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


# ---- Functions of one lane -----------------------------------------------------------------------


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding: exact in float64, rounded to odd there, then to the type."""
    product = a.astype(np.float64) * b.astype(np.float64)
    wide = c.astype(np.float64)
    total = product + wide
    back = total - product
    error = (product - (total - back)) + (wide - back)
    raw = total.view(np.int64)
    towards = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & (raw & 1 == 0), raw + towards, raw)
    return odd.view(np.float64).astype(a.dtype)


def _saturate(wide: Array, name: str) -> Array:
    limits = np.iinfo(dtype(name))
    return np.clip(wide, limits.min, limits.max).astype(dtype(name))


def _unsigned(values: Array) -> Array:
    return values.view(f"u{values.dtype.itemsize}")


def _popcount(values: Array) -> Array:
    return np.bitwise_count(_unsigned(values)).astype(values.dtype)


def _leading_zeros(values: Array) -> Array:
    raw, count = _unsigned(values).astype(np.uint64), values.dtype.itemsize * 8
    result = np.full(values.shape, count)
    for bit in range(count):
        result = np.where((raw >> np.uint64(bit)) & np.uint64(1) != 0, count - 1 - bit, result)
    return result.astype(values.dtype)


def _trailing_zeros(values: Array) -> Array:
    raw, count = _unsigned(values).astype(np.uint64), values.dtype.itemsize * 8
    result = np.full(values.shape, count)
    for bit in reversed(range(count)):
        result = np.where((raw >> np.uint64(bit)) & np.uint64(1) != 0, bit, result)
    return result.astype(values.dtype)


def _rotate(values: Array, count: Array) -> Array:
    width_of = values.dtype.itemsize * 8
    raw = _unsigned(values)
    left = _unsigned(count) % raw.dtype.type(width_of)
    right = (raw.dtype.type(width_of) - left) % raw.dtype.type(width_of)
    return ((raw << left) | (raw >> right)).astype(raw.dtype).view(values.dtype)


def whole_limit(name: str) -> float:
    """Sums of 32 whole numbers up to this are exact in any order."""
    return 32.0 if element(name) == "half" else 512.0


def builtin(function: str, name: str, values: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return convert(_builtin(function, name, values), name)


def _builtin(function: str, name: str, values: list[Array]) -> Array:
    first = values[0]
    if function in ("min", "max"):
        chosen = values[1] < first if function == "min" else first < values[1]
        return np.where(chosen, values[1], first)
    if function == "clamp":
        return np.minimum(np.maximum(first, values[1]), values[2])
    if function == "abs":
        return np.abs(first)
    if function == "fma":
        return fused(first, values[1], values[2])
    if function == "multiply_add":  # exact, by its operands, fused or not
        return binary("+", name, binary("*", name, first, values[1]), values[2])
    if function == "whole":
        limit = whole_limit(name)
        return np.rint(np.clip(first, -limit, limit)).astype(dtype(name))
    if function in ("add_saturated", "subtract_saturated"):
        left, right = first.astype(np.int64), values[1].astype(np.int64)
        return _saturate(left + right if function[0] == "a" else left - right, name)
    return _SIMPLE[function](*values)


_SIMPLE = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "popcount": _popcount,
    "clz": _leading_zeros,
    "ctz": _trailing_zeros,
    "rotate": _rotate,
    "select": lambda no, yes, condition: np.where(condition, yes, no),
}
