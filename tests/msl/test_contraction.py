"""Products and sums of one expression are fused, of vectors as of scalars, and no others are.

clang decides about scalars as Apple's compiler does. So each component of an expression of vectors
must be, bit by bit, the same expression of scalars: half and bfloat round twice, float once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from vector_model import FLOATS, HEADER, array, blank, samples, tensor

import anymetal
from anymetal.engines.cuda.target import target
from anymetal.engines.registry import METAL
from anymetal.nouns import Source

COUNT = 64
# Values of T, where a, b, c, d are variables, x is one to be changed, and f(a, b) is a product.
EXPRESSIONS = (
    "a * b + c",
    "c + a * b",
    "a * b - c",
    "c - a * b",
    "((a * b)) + (c)",
    "-(a * b) + c",
    "c - -(a * b)",
    "+(a * b) - c",
    "a * b + c * d",
    "a * b - c * d",
    "-(a * b) - c * d",
    "a * b * c + d",
    "a * b / c + d",
    "a * b + c + d",
    "c + d + a * b",
    "a + b * c + d",
    "(a * b + c) * d + a",
    "a * (b * c + d) - b",
    "2 * a + b",
    "c - a * 3",
    "s * a + b",
    "b - a * s",
    "(c, a * b) + d",
    "x += a * b",
    "x -= a * b",
    "x += (a * b)",
    "x += a * b + d",
    "x *= a * b + c",
    "(x = a * b) + c",
    "(x *= b) + c",
    "f(a, b) + c",
    "c - f(a, b)",
    "p + c",
    "T(p) + c",
    "T(a * b) + c",
    "c - T(a * b)",
    "(T)(a * b) - c",
    "x += static_cast<T>(a * b)",
    "T(a * b + c) * d - T(b * c)",
    "T(T(a * b) + c) * d",
    "T(a * b / d) + c",
    "T(s) * T(b) + T(c * T(d))",
    "q - p",
    "g([&](T u) { return u * b; }(a), c)",
    "g(a * b, c)",
    "g(a * b + c, d)",
    "(s > 0 ? a * b : c) + d",
    "(true ? a * b : c) + d",
    "d - (s > 0 ? a * b : c * d)",
    "a * b + 1",
    "1 - a * b",
    "a * a - a * a",
)
TEMPLATES = """
template <class T> static T f(T a, T b) { return a * b; }
template <class T> static T g(T a, T b) { return a + b; }
template <class T, class S>
static T value(int which, T a, T b, T c, T d, S s) {
  T x = c;
  auto p = a * b;
  const thread auto& q = c * d;
  switch (which) {
CASES
  }
  return T(0);
}
"""


def source_of(scalar: str) -> str:
    cases = "\n".join(f"    case {at}: return {text};" for at, text in enumerate(EXPRESSIONS))
    kernels = "\n".join(
        f"""kernel void of_{size}(device const {kind}* in, device {kind}* out,
                         uint i [[thread_position_in_grid]]) {{
  for (int which = 0; which < {len(EXPRESSIONS)}; ++which) {{
    out[which * {COUNT} + i] = value<{kind}, {scalar}>(
        which, in[i], in[{COUNT} + i], in[2 * {COUNT} + i], in[3 * {COUNT} + i], {scale});
  }}
}}"""
        for size, kind, scale in (
            (1, scalar, "in[0]"),
            *((size, f"{scalar}{size}", "in[0].x") for size in (2, 4)),
        )
    )
    return HEADER + TEMPLATES.replace("CASES", cases) + kernels


@pytest.mark.parametrize("scalar", FLOATS)
def test_vectors_are_fused_as_scalars_are(scalar: str) -> None:
    library = anymetal.compile_shader(source_of(scalar))
    given = samples(scalar, (4, COUNT), seed=7)
    rows = len(EXPRESSIONS)
    plain = blank(scalar, rows * COUNT)
    library.of_1(tensor(scalar, given), plain, threads=COUNT)
    expected = array(scalar, plain).reshape(rows, COUNT)
    for size in (2, 4):
        wide = np.repeat(given[:, :, None], size, axis=2)
        out = blank(scalar, rows * COUNT * size)
        getattr(library, f"of_{size}")(tensor(scalar, wide), out, threads=COUNT)
        got = array(scalar, out).reshape(rows, COUNT, size)
        different = [
            text
            for text, one, other in zip(EXPRESSIONS, got, expected, strict=True)
            if not np.array_equal(one, np.repeat(other[:, None], size, axis=1))
        ]
        assert different == []


def test_gpu_code_is_fused_too() -> None:
    source = Source(source_of("half"), name="half.metal")
    one, four = (
        METAL.program(source, f"of_{size}", {}, target("sm_90"), optimise=True).ir.count(
            "call half @llvm.fmuladd.f16("
        )
        for size in (1, 4)
    )
    assert four == 4 * one > 0


# What only vectors have: a variable of its own type, and the statement that adds a product to it.
STATEMENTS = (
    ("float4", "r += a * b;"),
    ("float4", "r.yx += (a * b).yx; r.zw += a.zw * b.zw;"),
    ("packed_float4", "r += a * b;"),
    ("float4", "decltype(a * b) sum = r; sum += a * b; r = sum;"),
    ("float4", "r = same<decltype(a * b), float4> ? a * b + r : r;"),
    ("float4", "struct { float4 v; } s; s.v = r; s.v += a * b; r = s.v;"),
    ("float4", "r = float4(a * b) + r;"),
    ("float4", "r += (float4)(a * b);"),
    ("float4", "r = vec<float, 4>(a * b) + r;"),
    ("float4", "r += (metal::vec<float, 4>)(a * b);"),
    ("float4", "r = r - metal::float4(-a * b);"),
    ("float4", "r = r + static_cast<float4>(a * b);"),
    ("float4", "r = scaled<float4, float4>(a, b, r);"),
    ("float4", "for (int n = 0; n < 4; ++n) r[n] = scaled<float, float>(a[n], b[n], r[n]);"),
    ("float4", "r = sum(a, b, r);"),
    ("float4", "r = float4(product(a, b)) + r;"),
)
OWN_OPERATOR = "struct Own { float v; };\nOwn operator+(Own a, Own b) { return Own{a.v + b.v}; }\n"
OF_STATEMENTS = """
template <class T, class U> constant constexpr bool same = is_same_v<T, U>;
template <class T, class U> static U scaled(T a, T b, T c) { return c + U(a * b); }
static float4 sum(float4 a, float4 b, float4 c) { return float4(a * b) + c; }
static float4 product(float4 a, float4 b) { return a * b; }
kernel void k(device const float4* in, device float4* out, uint i [[thread_position_in_grid]]) {
  float4 a = in[i], b = in[64 + i], c = in[128 + i];
BODY
}
"""


def roundings(library: anymetal.ShaderLibrary, rows: int) -> npt.NDArray[np.bool_]:
    """Per row, whether a result is fused and whether it is rounded twice: (rows, 2)."""
    given = samples("float", (3, COUNT, 4), seed=11)
    out = blank("float", rows * COUNT * 4)
    library.k(tensor("float", given), out, threads=COUNT)
    got = array("float", out).reshape(rows, COUNT, 4)
    a, b, c = given.astype(np.float64)
    exact = (a * b + c).astype(np.float32)
    twice = given[0] * given[1] + given[2]
    return np.array([[np.array_equal(row, exact), np.array_equal(row, twice)] for row in got])


@pytest.mark.parametrize("prelude", ["", OWN_OPERATOR])
def test_products_are_fused_in_every_form_of_a_vector(prelude: str) -> None:
    body = "\n".join(
        f"  {{ {kind} r = c; {text} out[{at} * {COUNT} + i] = r; }}"
        for at, (kind, text) in enumerate(STATEMENTS)
    )
    library = anymetal.compile_shader(HEADER + prelude + OF_STATEMENTS.replace("BODY", body))
    got = roundings(library, len(STATEMENTS))
    # (a * b).yx is a selection of a product, and none itself.
    expected = [True] * len(STATEMENTS)
    for text in ("r.yx += (a * b).yx", "float4(product(a, b))"):
        (place,) = (at for at, (_, body) in enumerate(STATEMENTS) if text in body)
        expected[place] = False
    assert got[:, 0].tolist() == expected


def test_a_pragma_forbids_it() -> None:
    pragma = "#pragma METAL fp contract(off)\n"
    body = "  out[i] = a * b + c;"
    text = HEADER + pragma + OF_STATEMENTS.replace("BODY", body)
    assert roundings(anymetal.compile_shader(text), 1).tolist() == [[False, True]]


def test_a_value_before_the_kernel_runs_is_computed_too() -> None:
    text = f"""{HEADER}
static float4 thirds() {{ return exp(float4(0)) * float4(3) + float4(1, 2, 3, 4); }}
constant float4 values = thirds();
kernel void k(device float4* out) {{ out[0] = values; }}
"""
    out = blank("float", 4)
    anymetal.compile_shader(text).k(out, threads=1)
    assert array("float", out).tolist() == [4, 5, 6, 7]
