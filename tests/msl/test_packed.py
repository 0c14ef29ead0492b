"""Packed vectors: layout in memory, conversion to vectors, operators, components and swizzles."""

from __future__ import annotations

import numpy as np
import pytest
from vector_model import (
    BYTES,
    HEADER,
    SCALARS,
    SIZES,
    accepted,
    array,
    blank,
    refusal,
    same,
    samples,
    tensor,
    values_of,
)

import anymetal

PACKED = tuple(name for name in SCALARS if name != "bool")


def test_packed_vectors_have_no_padding() -> None:
    names = [f"packed_{name}{size}" for name in PACKED for size in SIZES]
    sizes = values_of("uint", [f"sizeof({name})" for name in names])
    alignments = values_of("uint", [f"alignof(metal::{name})" for name in names])
    assert sizes.tolist() == [BYTES[name] * size for name in PACKED for size in SIZES]
    assert alignments.tolist() == [BYTES[name] for name in PACKED for _ in SIZES]


def test_packed_vectors_lie_in_structures_as_on_a_mac() -> None:
    prelude = (
        "struct Vertex { packed_float3 at; float u; packed_half3 n; half a; packed_char3 c; };"
    )
    checks = ["sizeof(Vertex)", "offsetof(Vertex, u)", "offsetof(Vertex, a)", "offsetof(Vertex, c)"]
    checks = [text.replace("offsetof", "__builtin_offsetof") for text in checks]
    assert values_of("uint", checks, prelude).tolist() == [28, 12, 22, 24]


@pytest.mark.parametrize("scalar", PACKED)
def test_arrays_of_packed_vectors_convert_both_ways(scalar: str) -> None:
    """Vectors and packed vectors of each size are copied through each other."""
    sizes = "\n".join(
        f"""
  {{ device const packed_{scalar}{size}* from = (device const packed_{scalar}{size}*)in;
    device packed_{scalar}{size}* to = (device packed_{scalar}{size}*)(out + {48 * (size - 2)});
    {scalar}{size} v = from[i];
    {scalar}{size} w = {scalar}{size}(from[11 - i]);
    packed_{scalar}{size} p(v);
    p = w;
    to[i] = i % 2 ? p : packed_{scalar}{size}(v); }}"""
        for size in SIZES
    )
    source = f"""{HEADER}
kernel void copy(device const {scalar}* in, device {scalar}* out,
                 uint i [[thread_position_in_grid]]) {{{sizes}
}}
"""
    values = samples(scalar, (48,), seed=6)
    results = blank(scalar, 48 * 3)
    anymetal.compile_shader(source).copy(tensor(scalar, values), results, threads=12)
    got = array(scalar, results).reshape(3, 48)
    for row, size in enumerate(SIZES):
        vectors = values[: 12 * size].reshape(12, size)
        expected = np.stack([vectors[11 - i] if i % 2 else vectors[i] for i in range(12)])
        assert same(got[row, : 12 * size].reshape(12, size), expected)


def test_operators_of_packed_vectors_give_vectors() -> None:
    prelude = """
constant packed_float3 a = packed_float3(1, 2, 3);
constant packed_int4 k = packed_int4(1, 2, 3, 4);
template <typename V> bool is_float3(V) { return is_same_v<V, float3>; }
"""
    expressions = {
        "(a + a).y": 4,
        "(a * float3(2)).z": 6,
        "(float3(1) - a).z": -2,
        "(a * 3).x": 3,
        "(2 / a).y": 1,
        "(-a).x": -1,
        "(a == float3(1, 0, 3)).z": 1,
        "(a < 2).y": 0,
        "(k % 2).z": 1,
        "(k << 1).w": 8,
        "(~k).x": -2,
        "is_float3(a + 1)": 1,
        "is_float3(a * a)": 1,
        "dot(float3(a), float3(a))": 14,
        "(a.zyx).x": 3,
        "a.rg.y": 2,
        "a[2]": 3,
        "float(half3(a).y)": 2,
        "(true ? float3(a) : 0).y": 2,
    }
    got = values_of("float", list(expressions), prelude)
    assert got.tolist() == [float(value) for value in expressions.values()]


def test_packed_vectors_are_assigned_in_place() -> None:
    source = f"""{HEADER}
kernel void assign(device packed_float3* p, device packed_uint2* k) {{
  p[0] = 1;
  p[1] = {{1, 2, 3}};
  p[2] = float3(4, 5, 6);
  p[2] += 1;
  p[2] *= p[1];
  p[3] = packed_float3(float2(7, 8), 9);
  p[3].xy = p[3].yx;
  p[3].z += p[3][0];
  p[4] = p[3].rgb - p[1];
  p[4][1] = 10;
  p[5] = packed_float3(half3(1, 2, 3));
  p[5].zyx = p[5];
  p[6] = packed_float3(packed_int3(1, 2, 3));
  k[0] = packed_uint2(6, 7);
  k[0] <<= 2;
  k[0]++;
  --k[0];
  k[1] = k[0]++;
}}
"""
    values, integers = blank("float", 24), blank("uint", 6)
    anymetal.compile_shader(source).assign(values, integers, threads=1)
    expected = [[1, 1, 1], [1, 2, 3], [5, 12, 21], [8, 7, 17], [7, 10, 14], [3, 2, 1], [1, 2, 3]]
    got = array("float", values).reshape(8, 3)
    assert got[:7].tolist() == expected
    assert same(got[7], array("float", blank("float", 3)))
    assert array("uint", integers)[:4].tolist() == [25, 29, 24, 28]


def test_packed_vectors_refuse_what_metal_refuses() -> None:
    statements = [
        "packed_float3 p(1, 2);",
        "packed_float3 p = int3(1);",
        "packed_float3 p(1); p.xx = float2(1);",
        "packed_float3 p(1); float r = p.w;",
        "packed_bool2 p;",
        "float4 v = packed_float3(1);",
        "float3 v = packed_half3(1);",
        "packed_float3 p(1); p %= 2;",
        "packed_float3 p(1); ++p;",
    ]
    assert accepted(statements) == []
    assert refusal("packed_float3 p(1); out[0] = p.x;") is None
