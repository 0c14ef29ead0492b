"""Operators of vectors against numpy: every type and size, vectors and scalars on either side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from vector_model import (
    FLOATS,
    HEADER,
    INTEGERS,
    SCALARS,
    SIZES,
    Array,
    accepted,
    array,
    blank,
    rounded,
    same,
    samples,
    tensor,
)

import anymetal

Rule = Callable[[Array, Array], Array]
COUNT = 65

# What C++ leaves undefined is defined for vectors: division by zero gives 0, shift counts wrap.


def quotient(a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.floating):
        return a / b  # type: ignore[operator]
    return whole(a, b, lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def remainder(a: Array, b: Array) -> Array:
    return whole(a, b, lambda x, y: abs(x) % abs(y) * (1 if x >= 0 else -1))


def whole(a: Array, b: Array, rule: Callable[[int, int], int]) -> Array:
    """Exact integers, wrapped into the type; 0 where the divisor is."""
    results = [rule(int(x), int(y)) if y else 0 for x, y in zip(a.flat, b.flat, strict=True)]
    bits = a.itemsize * 8
    wrapped = np.array([value % (1 << bits) for value in results], f"u{a.itemsize}")
    return wrapped.view(a.dtype).reshape(a.shape)


def shifted(a: Array, b: Array, left: bool) -> Array:
    count = (b.astype(np.uint64) & np.uint64(a.itemsize * 8 - 1)).astype(a.dtype)
    return a << count if left else a >> count  # type: ignore[operator]


ARITHMETIC: dict[str, Rule] = {
    "a + b": np.add,
    "a - b": np.subtract,
    "a * b": np.multiply,
    "a / b": quotient,
    "a + s": lambda a, b: a + b[:1],  # type: ignore[operator]
    "s - a": lambda a, b: b[:1] - a,  # type: ignore[operator]
    "a * 2": lambda a, b: a * a.dtype.type(2),  # type: ignore[operator]
    "2 * a": lambda a, b: a * a.dtype.type(2),  # type: ignore[operator]
    "-a": lambda a, b: -a,  # type: ignore[operator]
    "+a": lambda a, b: a,
    "(c += b, c)": np.add,
    "(c -= s, c)": lambda a, b: a - b[:1],  # type: ignore[operator]
    "(c *= b, c)": np.multiply,
    "(c /= b, c)": quotient,
}
BITWISE: dict[str, Rule] = {
    "a & b": np.bitwise_and,
    "a | b": np.bitwise_or,
    "a ^ b": np.bitwise_xor,
    "a & s": lambda a, b: np.bitwise_and(a, b[:1]),
    "(c &= b, c)": np.bitwise_and,
    "(c |= b, c)": np.bitwise_or,
    "(c ^= b, c)": np.bitwise_xor,
}
INTEGER: dict[str, Rule] = {
    "a % b": remainder,
    "~a": lambda a, b: ~a,  # type: ignore[operator]
    "a << b": lambda a, b: shifted(a, b, left=True),
    "a >> b": lambda a, b: shifted(a, b, left=False),
    "a << 3": lambda a, b: shifted(a, np.full_like(a, 3), left=True),
    "(c %= b, c)": remainder,
    "(c <<= b, c)": lambda a, b: shifted(a, b, left=True),
    "(c >>= s, c)": lambda a, b: shifted(a, np.broadcast_to(b[:1], a.shape), left=False),
    "++c": lambda a, b: a + a.dtype.type(1),  # type: ignore[operator]
    "--c": lambda a, b: a - a.dtype.type(1),  # type: ignore[operator]
    "c++": lambda a, b: a,
    "(c--, c)": lambda a, b: a - a.dtype.type(1),  # type: ignore[operator]
}
COMPARISONS: dict[str, Rule] = {
    "a == b": np.equal,
    "a != b": np.not_equal,
    "a < b": np.less,
    "a > b": np.greater,
    "a <= b": np.less_equal,
    "a >= b": np.greater_equal,
    "a < s": lambda a, b: a < b[:1],  # type: ignore[operator]
    "s == b": lambda a, b: b[:1] == b,
    "a && b": np.logical_and,
    "a || b": np.logical_or,
    "!a": lambda a, b: np.logical_not(a),
}


def rules(scalar: str) -> dict[str, Rule]:
    if scalar == "bool":
        return BITWISE
    return ARITHMETIC if scalar in FLOATS else {**ARITHMETIC, **BITWISE, **INTEGER}


def source_of(scalar: str) -> str:
    """One kernel for all sizes; each thread writes its results one after the other."""
    bodies, values, truths = [], 0, 0
    for size in SIZES:
        lines = [f"  {{ packed_vec<{scalar}, {size}> pa, pb; {scalar}{size} a, b, c;"]
        for name in "ab":
            loads = ", ".join(f"{name}[i * 4 + {place}]" for place in range(size))
            lines.append(f"    {name}2 = {scalar}{size}({loads});".replace(f"{name}2", f"p{name}"))
        lines.append(f"    a = pa; b = pb; {scalar} s = b.x;".replace("    a = pa", "    a = pa"))
        for text in rules(scalar):
            stores = " ".join(f"values[{values + place}] = r[{place}];" for place in range(size))
            lines.append(f"    {{ c = a; {scalar}{size} r = {text}; {stores} }}")
            values += size
        for text in COMPARISONS:
            stores = " ".join(f"truths[{truths + place}] = r[{place}];" for place in range(size))
            lines.append(f"    {{ bool{size} r = {text}; {stores} }}")
            truths += size
        bodies.append("\n".join([*lines, "  }"]))
    body = "\n".join(bodies)
    return f"""{HEADER}
template <typename T>
void all(device const T* a, device const T* b, device T* values, device bool* truths, uint i);
kernel void all(device const {scalar}* first, device const {scalar}* second,
                device {scalar}* all_values, device bool* all_truths,
                uint i [[thread_position_in_grid]]) {{
  device {scalar}* values = all_values + i * {values};
  device bool* truths = all_truths + i * {truths};
{body}
}}
"""


def operands(scalar: str) -> tuple[Array, Array]:
    """Random values, with zeros, ones, extremes and equal pairs among them."""
    first, second = samples(scalar, (COUNT, 4), seed=4), samples(scalar, (COUNT, 4), seed=5)
    second[1], second[2], second[3] = first[1], 0, 1
    first[4] = 0
    if scalar in INTEGERS:
        limits = np.iinfo(SCALARS[scalar])  # type: ignore[arg-type]
        first[5], first[6] = limits.min, limits.max
        second[5] = np.array(-1).astype(SCALARS[scalar])
        second[7:20] = np.arange(52).reshape(13, 4).astype(SCALARS[scalar])
    elif scalar in FLOATS:
        first[5], first[6], first[7] = np.inf, np.nan, -0.0
        second[5], second[8] = np.inf, np.nan
    return first, second


@pytest.mark.parametrize("scalar", SCALARS)
def test_operators_agree_with_numpy_componentwise(scalar: str) -> None:
    first, second = operands(scalar)
    source = SOURCE_TEMPLATE(scalar)
    per_thread = sum(SIZES) * len(rules(scalar)), sum(SIZES) * len(COMPARISONS)
    values, truths = blank(scalar, COUNT * per_thread[0]), blank("bool", COUNT * per_thread[1])
    kernel = anymetal.compile_shader(source).all
    kernel(tensor(scalar, first), tensor(scalar, second), values, truths, threads=COUNT)
    got_values = array(scalar, values).reshape(COUNT, -1)
    got_truths = array("bool", truths).reshape(COUNT, -1)
    at_value = at_truth = 0
    for size in SIZES:
        for text, rule in rules(scalar).items():
            got = got_values[:, at_value : at_value + size]
            check(scalar, text, rule, first[:, :size], second[:, :size], got)
            at_value += size
        for text, rule in COMPARISONS.items():
            got = got_truths[:, at_truth : at_truth + size]
            check("bool", text, rule, first[:, :size], second[:, :size], got)
            at_truth += size


def check(result: str, text: str, rule: Rule, a: Array, b: Array, got: Array) -> None:
    with np.errstate(all="ignore"):
        expected = np.stack([rule(x, y) for x, y in zip(a, b, strict=True)])
    if result == "bfloat":
        expected = rounded("bfloat", expected)
    assert same(got, expected.astype(got.dtype)), f"{text} for {result} of {a.shape[1]}"
