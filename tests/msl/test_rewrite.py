"""Metal becomes C++: each rewrite, and that what comes out compiles and means the same."""

from __future__ import annotations

import pytest
import torch
from tests.msl.sources import HEADER, compiled, kernel, one_line, prepared

import anymetal
from anymetal.errors import KernelSyntaxError
from anymetal.msl.literals import rewrite_number


def body_of(text: str) -> str:
    """The rewritten body of a kernel called k."""
    return one_line(prepared(kernel(text)).text).partition("{")[2].rpartition("}")[0].strip()


def run(source: str, *arguments: object, name: str = "k", **options: object) -> None:
    getattr(anymetal.compile_shader(HEADER + source), name)(*arguments, **options)


# ---- literals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metal", "plain"),
    [
        ("0.5", "0.5f"),
        ("1.", "1.f"),
        (".5", ".5f"),
        ("1e-5", "1e-5f"),
        ("0x1p-3", "0x1p-3f"),
        ("1.5f", "1.5f"),
        ("1.5F", "1.5F"),
        ("1.5h", "half(1.5f)"),
        ("2h", "half(2.0f)"),
        ("0x1.8p3h", "half(0x1.8p3f)"),
        ("1.5bf", "bfloat(1.5f)"),
        ("1", "1"),
        ("1u", "1u"),
        ("0x1e5", "0x1e5"),
        ("0b101", "0b101"),
        ("0xFFul", "0xFFul"),
        ("1'000", "1'000"),
        ("1'000.5", "1'000.5f"),
    ],
)
def test_number(metal: str, plain: str) -> None:
    assert rewrite_number(metal) == plain


def test_literals_have_metals_types() -> None:
    checks = [
        "static_assert(is_same_v<decltype(0.5), float>);",
        "static_assert(is_same_v<decltype(1.0h), half>);",
        "static_assert(is_same_v<decltype(1.0bf), bfloat>);",
        "static_assert(is_same_v<decltype(1e3 * 2.0h), float>);",
    ]
    compiled(kernel(" ".join(checks)))


# ---- address spaces -----------------------------------------------------------------------------


def test_spaces_are_erased_and_constant_is_const() -> None:
    text = prepared(
        "float f(device const float* a, threadgroup float& b, constant float* c, thread int* d) {"
        " return a[0] + b + c[0] + d[0]; }\nconstant float table[2] = {1, 2};\n"
    ).text
    assert "inline float f( const float* a, float& b, const float* c, int* d)" in one_line(text)
    assert "const float table[2]" in one_line(text)


def test_const_is_not_doubled() -> None:
    text = one_line(
        prepared("constant constexpr const float a = 1; float f(const constant int* p);").text
    )
    assert "constexpr const float a" in text
    assert "f(const int* p)" in text


def test_writing_to_constant_memory_is_refused() -> None:
    with pytest.raises(KernelSyntaxError, match="read-only"):
        compiled(kernel("y[0] = 1;", "constant float* y [[buffer(0)]]"))


def test_overloads_on_spaces_become_one() -> None:
    source = """
      template <typename T> struct Element;
      template <typename T> struct Element<device T*> { using type = T; };
      template <typename T> struct Element<threadgroup T*> { using type = T; };
      struct Pair {
        float a, b;
        Pair(float a, float b) thread : a(a), b(b) {}
        Pair(float a, float b) constant : a(a), b(b) {}
        float sum() const thread { return a + b; }
        float sum() const device { return a + b; }
        float sum() constant { return a + b; }
      };
      float first(device const float* p) { return p[0]; }
      float first(threadgroup const float* values) { return values[0]; }
      float first(constant float* p) { return p[0]; }
      struct Behind { float value; };
    """
    body = "threadgroup float t[1]; x[i] = first(x) + first(t) + Pair(1, 2).sum();"
    compiled(kernel(body, before=source))


def test_overloads_that_differ_in_more_than_spaces_are_refused() -> None:
    source = (
        "float get(device float* p) { return p[0]; }\n"
        "float get(threadgroup float* p) { return p[1]; }\n"
    )
    with pytest.raises(KernelSyntaxError) as error:
        prepared(source)
    assert "<shader>:4:7: error: anymetal erases address spaces" in str(error.value)
    assert "<shader>:3:7: note: the other definition is here" in str(error.value)


def test_true_redefinition_is_clangs_to_report() -> None:
    with pytest.raises(KernelSyntaxError, match="redefinition of 'f'"):
        compiled("float f(float a) { return a; }\nfloat f(float a) { return a; }\n" + kernel(""))


# ---- threadgroup variables ----------------------------------------------------------------------


def test_threadgroup_variables_become_references() -> None:
    assert body_of("threadgroup float a[8], b[2][4];") == (
        "using am_type_0 = float[8] ; am_type_0& a = am_threadgroup_variable<am_type_0, 0>() ; "
        "using am_type_1 = float[2][4] ; am_type_1& b = am_threadgroup_variable<am_type_1, 1>() ;"
    )


@pytest.mark.parametrize(
    "declaration",
    [
        "threadgroup float a[4];",
        "threadgroup float4 a;",
        "threadgroup metal::float4 a[2];",
        "threadgroup vec<float, 4> a[2];",
        "threadgroup atomic_uint a;",
        "threadgroup array<float, 4> a;",
        "const threadgroup float a[2] = {1, 2};",
        "alignas(64) threadgroup float a[4];",
        "threadgroup alignas(64) float a[4];",
        "threadgroup unsigned int a[2];",
        "threadgroup decltype(x[0] + 1) *b = nullptr; threadgroup float a;",
        "device float* threadgroup a;",
        "threadgroup float a = 1.0f;",
        "threadgroup float a[4] = {0};",
        "threadgroup float a{1};",
    ],
)
def test_threadgroup_declaration_is_found(declaration: str) -> None:
    unit = prepared(kernel(declaration))
    assert [variable.name for variable in unit.threadgroup_variables] == ["a"]
    compiled(kernel(declaration))


@pytest.mark.parametrize(
    "statement",
    [
        "threadgroup float* p = t;",
        "threadgroup float& r = t[0];",
        "threadgroup float (*rows)[2] = (threadgroup float (*)[2])t;",
        "const threadgroup float* const p = t;",
        "threadgroup auto& r = t;",
        "float a = *reinterpret_cast<threadgroup float*>(t);",
    ],
)
def test_threadgroup_pointers_are_no_variables(statement: str) -> None:
    unit = prepared(kernel("threadgroup float t[4]; " + statement))
    assert [variable.name for variable in unit.threadgroup_variables] == ["t"]
    compiled(kernel("threadgroup float t[4]; " + statement))


@pytest.mark.parametrize(
    "source",
    [
        "struct S { threadgroup float value; };",
        "using Shared = threadgroup float;",
        kernel("if (i == 0) for (threadgroup float t = 0;;) {}"),
    ],
)
def test_threadgroup_use_that_is_not_understood_is_an_error(source: str) -> None:
    with pytest.raises(KernelSyntaxError, match="threadgroup"):
        prepared(source)


def test_threadgroup_initialiser_is_stored_once() -> None:
    source = kernel(
        "threadgroup int sum = 10; threadgroup int table[3] = {1, 2};\n"
        "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "  y[i] = sum + table[0] + 10 * table[1] + 100 * table[2];",
        "device int* y, uint i [[thread_position_in_grid]]",
    )
    y = torch.zeros(64, dtype=torch.int32)
    run(source, y, threads=64, group_size=32)
    assert y.tolist() == [31] * 64


def test_threadgroup_memory_is_shared_and_slots_are_apart() -> None:
    source = kernel(
        "threadgroup int a[32]; threadgroup short b[32];\n"
        "  a[l] = l; b[l] = -l;\n"
        "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "  y[i] = 100 * a[31 - l] + b[(l + 1) % 32];",
        "device int* y, uint i [[thread_position_in_grid]], "
        "ushort l [[thread_index_in_threadgroup]]",
    )
    y = torch.zeros(32, dtype=torch.int32)
    run(source, y, threads=32, group_size=32)
    assert y.tolist() == [100 * (31 - lane) - (lane + 1) % 32 for lane in range(32)]


# ---- casts --------------------------------------------------------------------------------------


def test_casts_between_half_and_bfloat() -> None:
    source = """
      template <typename T, typename U> T via(U x) {
        using A = T;
        typedef T B;
        T sum = T(x) + (T)x + static_cast<T>(x) + (A)(x) + B(x) + 2 * T(x);
        return x > U(0) && x > (U)0 ? sum : -(T)x;
      }
      struct Holder { bfloat value; Holder(half h) : value(bfloat(h)) {} };
    """
    source += kernel(
        "y[0] = via<bfloat>(half(1.5)); y[1] = via<half>(bfloat(1.5));"
        " y[2] = (float)(bfloat)half(2.5); y[3] = Holder(0.5h).value;"
        " y[4] = via<half>(bfloat(-1));",
        "device float* y",
    )
    y = torch.zeros(5)
    run(source, y, threads=1)
    assert y.tolist() == [10.5, 10.5, 2.5, 0.5, 1.0]


@pytest.mark.parametrize(
    "text",
    [
        "template <typename T> uint f(T x) { return sizeof(T) + alignof(T); }",
        "template <typename T> T f(T x) { T (*rows)[4] = nullptr; return rows ? x : T(); }",
        "template <typename T> struct S : T { S(int a) : T(a) {} };",
        "template <typename T> struct S { operator T() const { return T(1); } };",
        "template <typename T> T f(T x) { return T(x, x); }",
        "template <typename T> bool f(T x) { return x > (T)0 && is_same_v<T, half>; }",
    ],
)
def test_text_that_only_looks_like_a_cast(text: str) -> None:
    text = text.replace("T (*", "thread T (*")
    compiled(text + "\n" + kernel(""))


# ---- the rest -----------------------------------------------------------------------------------


def test_only_the_kernel_asked_for_is_compiled() -> None:
    source = "".join(kernel(f"x[i] = {n};").replace("k(", f"k{n}(") for n in range(3))
    ir = compiled(source, "k1").ir
    assert ir.count("define ") == 2  # the thread and the loop over a threadgroup
    assert "am_thread_main" in ir


def test_everything_is_inlined_into_the_kernel() -> None:
    source = """
      __attribute__((noinline)) float helper(float a) { return a + 1; }
      template <typename F> float apply(F f, float a) { return f(a); }
    """
    body = "auto twice = [](float a) { return helper(a) * 2; }; x[i] = apply(twice, x[i]);"
    assert compiled(kernel(body, before=source)).ir.count("define ") == 2


def test_explicit_instantiations_emit_nothing() -> None:
    source = "template <typename T> T f(T a) { return a; }\ntemplate float f<float>(float);\n"
    assert compiled(source + kernel("")).ir.count("define ") == 2


@pytest.mark.parametrize(
    ("pragma", "expected"),
    [
        ("#pragma unroll", "#pragma unroll"),
        ("#pragma unroll(4)", "#pragma unroll(4)"),
        ("#pragma unroll 4", "#pragma unroll 4"),
        ("#pragma unroll(COUNT)", "#pragma unroll"),
        ("#pragma unroll(count)", "#pragma unroll(count)"),
        ("#pragma clang loop unroll(full)", "#pragma clang loop unroll(full)"),
        ('_Pragma("unroll")', "#pragma unroll"),
    ],
)
def test_unroll_pragma(pragma: str, expected: str) -> None:
    source = kernel(
        f"constexpr int count = 2;\n{pragma}\n  for (int n = 0; n < count; ++n) x[n] = n;",
        before="#define COUNT (1 + 1)\n",
    )
    lines = [line.strip() for line in prepared(source).text.split("\n")]
    assert [line for line in lines if line.startswith("#")] == [expected]
    compiled(source)


def test_other_pragmas_are_dropped() -> None:
    text = prepared(
        "#pragma METAL internals : enable\n#pragma once\n#pragma mark\n" + kernel("")
    ).text
    assert "#" not in text


def test_math_pragma_reaches_clang() -> None:
    text = prepared(kernel("\n#pragma METAL fp contract(off)\n  x[i] = x[i] * 2 + 1;")).text
    assert "#pragma clang fp contract(off)" in text


def test_names_that_later_standards_reserve() -> None:
    compiled(kernel("uint requires = 1, concept = 2; x[i] = requires + concept;"))


def test_kernel_called_main() -> None:
    source = kernel("x[i] = 3;").replace("k(", "main(")
    x = torch.zeros(4)
    run(source, x, name="main")
    assert x.tolist() == [3.0] * 4


def test_kernel_with_the_name_of_a_metal_function() -> None:
    x = torch.zeros(4)
    run(kernel("x[i] = 3;").replace("k(", "step("), x, name="step")
    assert x.tolist() == [3.0] * 4
