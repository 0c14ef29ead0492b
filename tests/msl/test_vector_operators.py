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
    values_of,
)

import anymetal

Rule = Callable[[Array, Array], Array]
COUNT = 64  # whole simdgroups: code for partial ones would be as long again

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


def loaded(scalar: str, size: int, buffer: str) -> str:
    parts = ", ".join(f"{buffer}[i * 4 + {place}]" for place in range(size))
    return f"{scalar}{size}({parts})"


def stored(buffer: str, start: int, size: int) -> str:
    return " ".join(f"{buffer}[{start + place}] = r[{place}];" for place in range(size))


def source_of(scalar: str) -> str:
    """One kernel for all sizes; each thread writes its results one after the other."""
    lines, values, truths = [], 0, 0
    for size in SIZES:
        kind = f"{scalar}{size}"
        setup = f"a = {loaded(scalar, size, 'first')}, b = {loaded(scalar, size, 'second')}"
        lines.append(f"  {{ {kind} {setup}, c; {scalar} s = b.x;")
        for text in rules(scalar):
            lines.append(f"    {{ c = a; {kind} r = {text}; {stored('values', values, size)} }}")
            values += size
        for text in COMPARISONS:
            lines.append(f"    {{ bool{size} r = {text}; {stored('truths', truths, size)} }}")
            truths += size
        lines.append("  }")
    body = "\n".join(lines)
    return f"""{HEADER}
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
    source = source_of(scalar)
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


# ---- Scalars of another type --------------------------------------------------------------------


def test_a_scalar_operand_converts_to_the_component_type() -> None:
    """`half4 * 2.1f` multiplies by the half nearest to 2.1, and `char4 + 300` wraps."""
    expressions = {
        "float((half4(3) * 2.1f).x)": np.float16(3) * np.float16(2.1),
        "float((0.1f + half4(1)).y)": np.float16(0.1) + np.float16(1),
        "float((half4(2) / 3).z)": np.float16(2) / np.float16(3),
        "float((float4(3) * 2).w)": 6,
        "float((float4(1) / 3u).x)": np.float32(1) / np.float32(3),
        "float((float3(1) * half(0.1h)).x)": np.float32(np.float16(0.1)),
        "float((char4(100) + 300).x)": np.int8(-112),
        "float((int2(7) / 2L).x)": 3,
        "float((uchar2(255) + true).x)": 0,
        "float((bfloat2(3) * 2).x)": 6,
        "float((float2(1) + uchar(2)).y)": 3,
        "float((ushort2(1) << 17).x)": 2,
        "float((true ? float4(2) : 0).x)": 2,
        "float((false ? half2(2) : 1).x)": 1,
        "float((int4(-7) % 4).x)": -3,
    }
    got = values_of("float", list(expressions))
    assert same(got, np.array([float(value) for value in expressions.values()], np.float32))


def test_signed_scalars_wrap_in_vectors() -> None:
    expressions = ["(int2(INT_MAX) + 1).x", "(int2(INT_MIN) - 1).y", "(int2(65536) * 65536).x"]
    expressions += ["(-int2(INT_MIN)).x", "(int2(INT_MIN) / -1).x"]
    expressions += ["\n// anymetal: allow(arithmetic) the checker finds it\n(int2(5) / 0).x"]
    low = -(2**31)
    assert values_of("int", expressions).tolist() == [low, 2**31 - 1, 0, low, low, 0]


def test_operators_refuse_what_metal_refuses() -> None:
    statements = [
        "float4 v = float4(1) + float3(1);",
        "float4 v = float4(1) + int4(1);",
        "auto v = half4(1) * float4(1);",
        "auto v = half4(1) * bfloat4(half4(1));",
        "auto v = bfloat4(half4(1)) * half(1);",
        "auto v = bfloat4(half4(1)) * 2.0f;",
        "auto v = float4(1) % 2;",
        "auto v = float4(1) & 2;",
        "auto v = float4(1) << 1;",
        "auto v = ~float4(1);",
        "float4 v(1); ++v;",
        "auto v = bool4(true) + bool4(true);",
        "auto v = bool4(true) * true;",
        "if (float4(1) < float4(2)) { out[0] = 1; }",
        "int4 v(1); v += float4(1);",
        "auto v = bool4(true) ? float4(1) : float4(2);",
    ]
    assert accepted(statements) == []
