"""Program-scope constants whose value takes more than folding: computed before the kernel runs."""

from __future__ import annotations

import math

import pytest
import torch
from tests.msl.sources import HEADER

import anymetal
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.errors import UnsetConstantError
from anymetal.msl.spelling import author_name
from anymetal.nouns import Source

TABLES = f"""{HEADER}
constant float4 E = exp(float4(0, 1, 2, 3));
constant float3 N = normalize(float3(1, 2, 2));
namespace inner {{ constant float3 C = cross(float3(1, 0, 0), float3(0, 1, 0)); }}
struct Record {{ int a; float b; half2 c; }};
constant Record R = {{1, sqrt(2.0f), sqrt(half2(4.0h))}};
static float harmonic(int n) {{
  float sum = 0;
  for (int k = 1; k <= n * 100; ++k) sum += 1.0f / k;
  return sum;
}}
constant float H[8] = {{harmonic(1), harmonic(2), harmonic(3), 4}};
constant float2x2 M = float2x2(cos(0.5f), sin(0.5f), 1, 2);
constant float plain = 5;
kernel void read(device float* out, uint i [[thread_position_in_grid]]) {{
  switch (i % 8) {{
    case 0: out[i] = E[(i / 8) % 4]; break;
    case 1: out[i] = N[(i / 8) % 3]; break;
    case 2: out[i] = inner::C.z; break;
    case 3: out[i] = R.a + R.b + R.c.y; break;
    case 4: out[i] = H[(i / 8) % 8]; break;
    case 5: out[i] = M[(i / 8) % 2][0]; break;
    default: out[i] = plain;
  }}
}}"""


def expected(i: int) -> float:
    def harmonic(n: int) -> float:
        return sum(1 / k for k in range(1, n * 100 + 1))

    step = i // 8
    return [
        math.exp(step % 4),
        [1 / 3, 2 / 3, 2 / 3][step % 3],
        1.0,
        1 + math.sqrt(2) + 2,
        [harmonic(1), harmonic(2), harmonic(3), 4, 0, 0, 0, 0][step % 8],
        [math.cos(0.5), 1][step % 2],
        5,
        5,
    ][i % 8]


@pytest.mark.parametrize("engine", ["auto", "coroutine"])
def test_values_are_computed_on_every_engine(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", engine)
    out = torch.full((257,), float("nan"))
    anymetal.compile_shader(TABLES).read(out)
    want = torch.tensor([expected(i) for i in range(257)])
    torch.testing.assert_close(out, want, rtol=2e-6, atol=0)


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        ("exp(0.0f) * 3 + 1", 0x40800000),  # 4
        ("normalize(float3(0, 3, 4)).y * 5 + rsqrt(4.0f) + fast::rsqrt(4.0f)", 0x40800000),
        ("fast::max(fast::exp2(2.0f), fast::sqrt(9.0f))", 0x40800000),
    ],
)
def test_values_are_computed_here_for_other_processors(value: str, bits: int) -> None:
    kernel = "kernel void read(device float* out) { *out = V; }"
    source = Source(f"{HEADER}\nconstant float V = {value};\n{kernel}")
    made = Compiler(source).compile("read", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    assert f", {bits};" in made.ptx


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        (
            "static float f(int n) { return n < 0 ? f(n) : f(n + 1) + f(n + 2); }"
            " constant float V = f(1);",
            "",
        ),
        (
            "static float f() { float s = 0; while (s < 1e9f) s = s * 0.5f + 1; return s; }"
            " constant float V = f();",
            "computing it takes longer than 2 s",
        ),
        (
            "static float f(constant float* p) { return *p; }"
            " constant float V = f((constant float*)16ul);",
            "the code that computes it crashes",
        ),
        ("constant float V = simd_sum(1.0f);", "the code that computes it needs a running kernel"),
    ],
)
def test_value_that_cannot_be_had_is_an_error_at_its_line(
    declaration: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_COMPILE_LIMIT", "2")
    text = f"{HEADER}\n{declaration}\nkernel void k(device float* x) {{ x[0] = V; }}"
    with pytest.raises(SyntaxError) as error:
        anymetal.compile_shader(text).k  # noqa: B018
    line = HEADER.count("\n") + 2
    assert f"<shader>:{line}:" in str(error.value)
    assert f"no initial value for 'V': {reason}" in str(error.value)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("_ZL1E", "E"), ("_ZN5innerL5tableE", "table"), ("_Z1fIDF16bET_", "f"), ("plain", "plain")],
)
def test_symbols_are_called_as_the_author_called_them(symbol: str, name: str) -> None:
    assert author_name(symbol) == name


DERIVED = f"""{HEADER}
constant bool a [[function_constant(0)]];
constant bool b [[function_constant(1)]];
constant bool both = a && b;
constant bool not_both = !both;
kernel void derived(device float* x) {{ x[0] = not_both ? 1 : 2; }}
kernel void plain(device float* x) {{ x[0] = 3; }}
"""


def test_values_made_from_function_constants_need_them() -> None:
    library = anymetal.compile_shader(DERIVED)
    x = torch.zeros(1)
    library.plain(x)
    assert x.item() == 3
    for values, expected in (((True, True), 2), ((True, False), 1)):
        library.specialize("derived", dict(enumerate(values)))(x)
        assert x.item() == expected
    with pytest.raises(UnsetConstantError, match=r"'a' \(index 0\)"):
        library.derived(x)
