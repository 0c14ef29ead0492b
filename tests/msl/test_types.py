"""Scalar and vector types: sizes, constructors, components and swizzles of every type and size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from vector_model import (
    BYTES,
    COLOURS,
    FLOATS,
    HEADER,
    LETTERS,
    SCALARS,
    SIZES,
    accepted,
    array,
    blank,
    named,
    refusal,
    same,
    samples,
    tensor,
    values_of,
)

import anymetal


def test_scalars_have_the_size_and_alignment_of_the_specification() -> None:
    names = [*SCALARS, "size_t", "ptrdiff_t", "int8_t", "uint16_t", "int32_t", "uint64_t"]
    expected = [*(BYTES[name] for name in SCALARS), 8, 8, 1, 2, 4, 8]
    sizes = values_of("uint", [f"sizeof({name})" for name in names])
    alignments = values_of("uint", [f"alignof({name})" for name in names])
    assert sizes.tolist() == alignments.tolist() == expected


def test_vectors_have_the_size_and_alignment_of_the_specification() -> None:
    expected = [BYTES[name] * (2 if size == 2 else 4) for name in SCALARS for size in SIZES]
    for prefix in ("", "metal::"):
        sizes = values_of("uint", [f"sizeof({prefix}{name})" for name in named(SCALARS)])
        alignments = values_of("uint", [f"alignof({prefix}{name})" for name in named(SCALARS)])
        assert sizes.tolist() == alignments.tolist() == expected


def test_vector_names_are_aliases_of_the_template() -> None:
    checks = "\n".join(
        f'static_assert(is_same_v<{name}{size}, vec<{name}, {size}>>, "{name}{size}");'
        for name in SCALARS
        for size in SIZES
    )
    assert refusal("", checks) is None
    assert refusal("", "static_assert(is_same_v<float2, vec<half, 2>>);") is not None


# ---- Constructors --------------------------------------------------------------------------------

# Arguments with the components they bring, written with the letters of a vector (1, 2, 3, 4).
CONSTRUCTORS = {
    2: {"s": "xx", "p, q": "pq", "v2": "xy", "v4.zw": "zw", "packed2": "xy"},
    3: {
        "s": "xxx",
        "p, q, s": "pqx",
        "v2, p": "xyp",
        "p, v2": "pxy",
        "v3": "xyz",
        "packed2, p": "xyp",
        "packed3": "xyz",
    },
    4: {
        "s": "xxxx",
        "p, q, s, p": "pqxp",
        "v2, p, q": "xypq",
        "p, v2, q": "pxyq",
        "p, q, v2": "pqxy",
        "v2, v4.zw": "xyzw",
        "v3, p": "xyzp",
        "p, v3": "pxyz",
        "v4": "xyzw",
        "packed4": "xyzw",
        "packed2, v2": "xyxy",
    },
}
LISTS = {2: {"{}": "00", "{p}": "p0", "{p, q}": "pq", "{v2}": "xy"}}
LISTS[3] = {"{}": "000", "{p}": "p00", "{p, q}": "pq0", "{p, q, s}": "pqx", "{v2, p}": "xyp"}
LISTS[4] = {
    "{}": "0000",
    "{p}": "p000",
    "{p, q, s}": "pqx0",
    "{p, q, s, p}": "pqxp",
    "{v2, v2}": "xyxy",
    "{v3, q}": "xyzq",
}


def constructions(scalar: str, size: int) -> list[tuple[str, str]]:
    """Expressions of type vec<scalar, size>, each with the components it should have."""
    kind = f"{scalar}{size}"
    calls = [(f"{kind}({text})", parts) for text, parts in CONSTRUCTORS[size].items()]
    calls += [(f"{kind}{text}", parts) for text, parts in LISTS[size].items()]
    calls += [(f"passed<{kind}>({text})", parts) for text, parts in LISTS[size].items()]
    calls += [(f"({kind})s", "x" * size), (f"static_cast<{kind}>(s)", "x" * size)]
    return calls


@pytest.mark.parametrize("scalar", SCALARS)
def test_constructors_take_the_components_in_order(scalar: str) -> None:
    digits = {"x": 1, "y": 2, "z": 3, "w": 4, "p": 5, "q": 6, "0": 0}
    packed = "" if scalar != "bool" else "packed_vec<bool, {0}> packed{0}(v{0});"
    setup = f"  {scalar} s = {scalar}(1), p = {scalar}(5), q = {scalar}(6);\n"
    for size in SIZES:
        values = ", ".join(f"{scalar}({digits[letter]})" for letter in LETTERS[:size])
        setup += f"  {scalar}{size} v{size}({values});\n"
        setup += packed.format(size) or f"  packed_{scalar}{size} packed{size}(v{size});\n"
    lines, expected = [], []
    for size in SIZES:
        for text, parts in constructions(scalar, size):
            lines.append(f"  {{ {scalar}{size} r = {text};")
            for index in range(size):
                lines.append(f"    out[{len(expected)}] = r[{index}];")
                expected.append(digits[parts[index]])
            lines.append("  }")
    prelude = "template <typename V> V passed(V v) { return v; }\n"
    source = f"{HEADER}{prelude}kernel void build(device {scalar}* out) {{\n{setup}"
    source += "\n".join(lines) + "\n}\n"
    results = blank(scalar, len(expected))
    anymetal.compile_shader(source).build(results, threads=1)
    assert same(array(scalar, results), np.array(expected).astype(SCALARS[scalar]))


def test_constructors_refuse_what_metal_refuses() -> None:
    statements = [
        "float4 v(1.0f, 2.0f, 3.0f);",
        "float4 v = float4(float2(1), 1.0f);",
        "float2 v(1.0f, 2.0f, 3.0f);",
        "float3 v = float3(float4(1));",
        "float4 v = float4(float3(1));",
        "float4 v = float4(int2(1), 1.0f, 2.0f);",
        "float4 v = float2(1);",
        "float4 v = int4(1);",
        "int4 v; v = uint4(1);",
        "half4 v = float4(1);",
        "half4 v = bfloat4(half4(1));",
        "bfloat4 v = 1.0f;",
        "bfloat4 v = half(1);",
        "half4 v = bfloat(1);",
        "float v = float2(1);",
        'float3 v = {1, 2, "a"};',
        "vec<float, 5> v;",
        "vec<float, 1> v;",
        "double2 v;",
    ]
    assert accepted(statements) == []


# ---- Components and swizzles ---------------------------------------------------------------------


def swizzles(size: int) -> list[tuple[int, ...]]:
    lengths = (2, 3, 4)
    return [
        chosen for length in lengths for chosen in itertools.product(range(size), repeat=length)
    ]


def spelled(chosen: tuple[int, ...], letters: str) -> str:
    return "".join(letters[index] for index in chosen)


def reads(letters: str, size: int) -> list[str]:
    """For each swizzle: has it the right type, and the right components?"""
    checks = []
    for chosen in swizzles(size):
        name = f"v{size}.{spelled(chosen, letters)}"
        number = sum(value * 10**place for place, value in enumerate(reversed(chosen)))
        checks.append(f"  static_assert(is_same_v<decltype({name}), vec<T, {len(chosen)}>>);")
        checks.append(f"  good = good && digits({name}) == {number};")
    return checks


def test_every_swizzle_of_every_type_reads_its_components() -> None:
    """As constant expressions. A component holds its number, so that a swizzle reads as digits."""
    body = "\n".join(itertools.chain(*(reads(LETTERS, size) for size in SIZES)))
    colours = "\n".join(itertools.chain(*(reads(COLOURS, size) for size in SIZES)))
    prelude = f"""
template <typename T> constexpr int digits(vec<T, 2> v) {{ return int(v.x) * 10 + int(v.y); }}
template <typename T> constexpr int digits(vec<T, 3> v) {{
  return int(v.x) * 100 + int(v.y) * 10 + int(v.z);
}}
template <typename T> constexpr int digits(vec<T, 4> v) {{
  return int(v.x) * 1000 + int(v.y) * 100 + int(v.z) * 10 + int(v.w);
}}
template <typename T> constexpr bool components() {{
  const vec<T, 2> v2(T(0), T(1));
  const vec<T, 3> v3(T(0), T(1), T(2));
  const vec<T, 4> v4(T(0), T(1), T(2), T(3));
  bool good = true;
{body}
  return good;
}}
template <typename T> constexpr bool colours() {{
  const vec<T, 2> v2(T(0), T(1));
  const vec<T, 3> v3(T(0), T(1), T(2));
  const vec<T, 4> v4(T(0), T(1), T(2), T(3));
  bool good = true;
{colours}
  return good;
}}
"""
    numbers = [name for name in SCALARS if name != "bool"]
    asserts = [f'  static_assert(components<{name}>(), "{name}");' for name in numbers]
    asserts += [f'  static_assert(colours<{name}>(), "{name}");' for name in ("half", "int")]
    assert refusal("\n".join(asserts), prelude) is None


def test_every_swizzle_of_bools_reads_its_components_at_run_time() -> None:
    lines, places = [], []
    for size, letters in itertools.product(SIZES, (LETTERS, COLOURS)):
        for chosen in swizzles(size):
            lines.append(f"  {{ bool{len(chosen)} r = v{size}.{spelled(chosen, letters)};")
            for place, index in enumerate(chosen):
                lines.append(f"    out[{len(places)}] = r[{place}];")
                places.append(index)
            lines.append("  }")
    body = "\n".join(lines)
    source = f"""{HEADER}
kernel void run(device const bool* in, device bool* out) {{
  bool2 v2(in[0], in[1]);
  bool3 v3(in[0], in[1], in[2]);
  bool4 v4(in[0], in[1], in[2], in[3]);
{body}
}}
"""
    kernel = anymetal.compile_shader(source).run
    for values in ((0, 1, 0, 1), (0, 0, 1, 1)):
        results = blank("bool", len(places))
        kernel(tensor("bool", np.array(values, np.bool_)), results, threads=1)
        assert array("bool", results).tolist() == [bool(values[place]) for place in places]


def test_every_assignable_swizzle_of_every_type_writes_its_components() -> None:
    writes = []
    for size, letters in itertools.product(SIZES, (LETTERS, COLOURS)):
        for chosen in swizzles(size):
            if len(set(chosen)) < len(chosen):
                continue
            values = ", ".join(f"T({place % 2 + 3})" for place in range(len(chosen)))
            expected = " && ".join(
                f"v[{index}] == T({chosen.index(index) % 2 + 3 if index in chosen else 0})"
                for index in range(size)
            )
            name = spelled(chosen, letters)
            writes.append(
                f"  {{ vec<T, {size}> v(T(0)); v.{name} = vec<T, {len(chosen)}>({values}); "
                f"good = good && {expected}; }}"
            )
    body = "\n".join(writes)
    prelude = f"""
template <typename T> constexpr bool writes() {{
  bool good = true;
{body}
  return good;
}}
"""
    asserts = "\n".join(f'  static_assert(writes<{name}>(), "{name}");' for name in SCALARS)
    assert refusal(asserts, prelude) is None


@pytest.mark.parametrize("scalar", ["uchar", "half", "float", "long"])
def test_swizzles_of_memory_read_and_write_at_run_time(scalar: str) -> None:
    """Through pointers, in a template, with compound assignment: the forms kernels use."""
    statements = {
        "p->wzyx": lambda v: v[[3, 2, 1, 0]],
        "T4(p->xy, p->zw)": lambda v: v,
        "p->xyzw + p->yzwx": lambda v: v + v[[1, 2, 3, 0]],
        "T4(p->rgb * p->gbr, p->a)": lambda v: np.array([*(v[:3] * v[[1, 2, 0]]), v[3]]),
        "-p->xxyy": lambda v: -v[[0, 0, 1, 1]],
        "(p->zw = p->xy, *p)": lambda v: v[[0, 1, 0, 1]],
        "(p->wx = p->xw, *p)": lambda v: v[[3, 1, 2, 0]],
        "(p->yz += 2, *p)": lambda v: v + np.array([0, 2, 2, 0], v.dtype),
        "(p->gb *= p->ra, *p)": lambda v: v * np.array([1, v[0], v[3], 1], v.dtype),
        "(p->w += p->r, *p)": lambda v: v + np.array([0, 0, 0, v[0]], v.dtype),
        "((*p)[2] = p->x, *p)": lambda v: v[[0, 1, 0, 3]],
        "(p->xyz = 3, *p)": lambda v: np.array([3, 3, 3, v[3]], v.dtype),
    }
    body = "\n".join(
        f"  {{ T4 copy = in[i]; thread T4* p = &copy; "
        f"out[i * {len(statements)} + {index}] = {text}; }}"
        for index, text in enumerate(statements)
    )
    source = f"""{HEADER}
template <typename T> void all(device const vec<T, 4>* in, device vec<T, 4>* out, uint i) {{
  typedef vec<T, 4> T4;
{body}
}}
kernel void run(device const {scalar}4* in, device {scalar}4* out,
                uint i [[thread_position_in_grid]]) {{
  all<{scalar}>(in, out, i);
}}
"""
    values = samples(scalar, (33, 4), seed=1)
    results = blank(scalar, 33 * len(statements) * 4)
    anymetal.compile_shader(source).run(tensor(scalar, values), results, threads=33)
    with np.errstate(over="ignore"):
        expected = np.stack([[rule(row) for rule in statements.values()] for row in values])
    assert same(array(scalar, results).reshape(expected.shape), expected.astype(SCALARS[scalar]))


def test_components_refuse_what_would_be_lost_or_metal_refuses() -> None:
    statements = [
        "float4 v(1); v.xx = float2(1);",
        "float4 v(1); v.xyx = float3(1);",
        "float4 v(1); v.rgbr = v;",
        "float4 v(1); v.xx += 1;",
        "float2 v(1); v.z = 1;",
        "float2 v(1); float2 r = v.xz;",
        "float3 v(1); float r = v.w;",
        "float3 v(1); float3 r = v.rga;",
        "float4 v(1); float2 r = v.xg;",
        "float4 v(1); float3 r = v.ryz;",
        "float4 v(1); v.xy = float4(1);",
        "float4 v(1); v.xy = float3(1);",
        "const float4 v(1); v.xy = float2(1);",
        "const float4 v(1); v[0] = 1;",
        "float4 v(1); thread float2* p = &v.xy;",
        "float4 v(1); thread float2& r = v.xy;",
        "float4 v(1); v.xyz.x = 2;",
        "float4 v(1); v.xyz.xy = float2(2);",
        "float4 v(1); v.xyz[0] = 2;",
        "(float4(1) + 1).x = 2;",
    ]
    assert accepted(statements) == []


def test_components_of_a_temporary_are_readable() -> None:
    expressions = ["(float4(1, 2, 3, 4) * 2).zyx.x", "float4(1, 2, 3, 4).zw[1]", "float3(5)[2]"]
    assert values_of("float", expressions).tolist() == [6, 4, 5]


@pytest.mark.parametrize("scalar", SCALARS)
def test_index_by_a_variable_reads_and_writes(scalar: str) -> None:
    source = f"""{HEADER}
kernel void run(device {scalar}4* v, device const {scalar}3* u, device {scalar}* out,
                uint i [[thread_position_in_grid]]) {{
  v[i][(i + 1) % 4] = u[0][i % 3];
  {scalar}2 pair(v[i][0], v[i][1]);
  out[i] = pair[i % 2];
}}
"""
    values, others = samples(scalar, (4, 4), seed=2), samples(scalar, (1, 4), seed=3)
    memory, results = tensor(scalar, values), blank(scalar, 4)
    anymetal.compile_shader(source).run(memory, tensor(scalar, others), results, threads=4)
    expected = values.copy()
    for i in range(4):
        expected[i, (i + 1) % 4] = others[0, i % 3]
    assert same(array(scalar, memory).reshape(4, 4), expected)
    assert same(array(scalar, results), np.array([expected[i, i % 2] for i in range(4)]))


def test_a_vector_of_three_takes_the_room_of_four() -> None:
    source = f"""{HEADER}
kernel void run(device const float3* in, device float* out, uint i [[thread_position_in_grid]]) {{
  out[i] = in[i].x + in[i].y * 10 + in[i].z * 100;
}}
"""
    values = np.arange(20, dtype=np.float32).reshape(5, 4)
    results = blank("float", 5)
    anymetal.compile_shader(source).run(tensor("float", values), results, threads=5)
    assert same(array("float", results), values[:, :3] @ np.array([1, 10, 100], np.float32))


# ---- Forms that kernels use ----------------------------------------------------------------------


def test_vectors_work_in_the_forms_that_kernels_use() -> None:
    prelude = """
constant float4 table[2] = {float4(1), {1, 2, 3, 4}};
struct Pair { float4 a; float b; };
union Bits { float4 v; uint4 u; float each[4]; };
enum Count { two = 2 };
template <typename T> float chosen(bool c, vec<T, 4> v, vec<T, 4> w) {
  vec<T, 3> r = c ? v.xyz : w.xyz;
  r += c ? v.xyz : vec<T, 3>(0);
  r = c ? r : 0;
  return r.z;
}
template <typename V, typename T = typename V::element_type> T first(V v) { return v[0]; }
float by_reference(thread float4& v) { v.xy = 9; v[3] = 1; return v.x + v.w; }
float referring() { float4 v(2); return by_reference(v) + v.y; }
float lambda() { auto f = [](float4 v) { return v.zw; }; return f(table[1]).y; }
float array_of_three() {
  float3 all[3] = {};
  thread float3* p = all + 1;
  *p = {1, 2, 3};
  p->z += 1;
  (*p).xy = p->yx;
  return all[1].x * 100 + all[1].y * 10 + p->z + all[2].x;
}
float united() { Bits b; b.v = table[1]; b.u.x = 0; b.each[1] = 5; return b.v.x + b.v.y + b.v.z; }
"""
    expressions = {
        "chosen(true, table[1], table[0])": 6,
        "chosen(false, table[1], table[0])": 0,
        "float(first(half3(7)))": 7,
        "referring()": 19,
        "lambda()": 4,
        "array_of_three()": 214,
        "united()": 8,
        "float4().x": 0,
        "Pair{}.a.y": 0,
        "Pair{{1, 2, 3, 4}, 5}.a.w": 4,
        "(table[0] * two).x": 2,
        "dot(packed_float3(3, 4, 12), packed_float3(1))": 19,
        "min(table[1].zw, table[1].xy).x": 1,
        "float(any(table[1].xy > 1))": 1,
    }
    got = values_of("float", list(expressions), prelude)
    assert got.tolist() == [float(value) for value in expressions.values()]


# ---- as_type -------------------------------------------------------------------------------------


def test_as_type_keeps_the_bits() -> None:
    expressions = [
        "as_type<uint>(1.0f)",
        "as_type<int4>(float4(1, 2, 3, 4)).w",
        "as_type<uint>(as_type<float>(0x3f800000))",
        "as_type<ushort2>(0x12345678).x",
        "as_type<uint>(half2(1, 2))",
        "as_type<ushort>(bfloat(1))",
        "as_type<uint>(uchar4(1, 2, 3, 4))",
        "as_type<uint2>(0x123456789abcdef0L).y",
        "as_type<uint3>(uint4(1, 2, 3, 4)).z",
        "as_type<uint>(-0.0f)",
    ]
    expected = [0x3F800000, 0x40800000, 0x3F800000, 0x5678, 0x40003C00, 0x3F80, 0x04030201]
    expected += [0x12345678, 3, 0x80000000]
    assert values_of("uint", expressions).tolist() == expected


@pytest.mark.parametrize(
    "statement", ["float4 v = as_type<float4>(half4(1));", "int v = as_type<int>(short(1));"]
)
def test_as_type_refuses_types_of_another_size(statement: str) -> None:
    message = refusal(statement)
    assert message is not None
    assert "as_type" in message


# ---- Constants -----------------------------------------------------------------------------------


def test_literals_have_the_type_of_their_suffix() -> None:
    checks = "\n".join(
        f"static_assert(is_same_v<decltype({text}), {kind}>);"
        for text, kind in {
            "0.5": "float",
            "0.5f": "float",
            "1e3": "float",
            "0.5h": "half",
            "0.5H": "half",
            "0.5bf": "bfloat",
            "1u": "uint",
            "1L": "long",
            "1ul": "ulong",
            "1": "int",
        }.items()
    )
    assert refusal("", checks) is None


@pytest.mark.parametrize("scalar", FLOATS)
def test_constants_are_rounded_to_their_type(scalar: str) -> None:
    suffix = {"half": "H", "bfloat": "BF", "float": "F"}[scalar]
    constants = {
        "E": np.e,
        "LOG2E": np.log2(np.e),
        "LOG10E": np.log10(np.e),
        "LN2": np.log(2),
        "LN10": np.log(10),
        "PI": np.pi,
        "PI_2": np.pi / 2,
        "PI_4": np.pi / 4,
        "1_PI": 1 / np.pi,
        "2_PI": 2 / np.pi,
        "2_SQRTPI": 2 / np.sqrt(np.pi),
        "SQRT2": np.sqrt(2),
        "SQRT1_2": np.sqrt(0.5),
    }
    got = values_of(scalar, [f"M_{name}_{suffix}" for name in constants])
    step = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24}[scalar]
    expected = np.array(list(constants.values()))
    assert np.all(np.abs(got.astype(np.float64) - expected) <= expected * step)
