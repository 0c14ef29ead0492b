"""What Apple's compiler refuses is refused in its words; the correct twin of each is accepted."""

from __future__ import annotations

import pytest
from tests.msl.sources import HEADER, check_all, compiled, kernel, prepared

from anymetal.errors import KernelSyntaxError, UnsupportedError
from anymetal.msl import prepare
from anymetal.nouns import Source

X = "device float* x [[buffer(0)]]"

POINTER = "pointer type must have explicit address space qualifier"
REFERENCE = "reference type must have explicit address space qualifier"

# A refused source, the message, and its accepted twin.
ROWS = [
    # pointers and references
    ("float f(float* p) { return *p; }", POINTER, "float f(thread float* p) { return *p; }"),
    ("float f(float& p) { return p; }", REFERENCE, "float f(thread float& p) { return p; }"),
    (
        "float f(const float4 &p) { return p.x; }",
        REFERENCE,
        "float f(const constant float4 &p) { return p.x; }",
    ),
    ("float f(metal::half2* p);", POINTER, "float f(device metal::half2* p);"),
    ("float f(vec<float, 4>* p);", POINTER, "float f(vec<float, 4> device* p);"),
    ("float f(unsigned int* p);", POINTER, "float f(device unsigned int* p);"),
    ("void f(void* p);", POINTER, "void f(device void* p);"),
    ("float* f();", POINTER, "device float* f();"),
    ("float f(float (&p)[4]);", REFERENCE, "float f(thread float (&p)[4]);"),
    ("struct S { float* p; };", POINTER, "struct S { device float* p; };"),
    (
        "struct S { int a; S& set(int b) { a = b; return *this; } };",
        REFERENCE,
        "struct S { int a; thread S& set(int b) thread { a = b; return *this; } };",
    ),
    ("using P = float*;", POINTER, "using P = device float*;"),
    ("typedef int* P;", POINTER, "typedef device int* P;"),
    (kernel("float a = 1; float* p = &a;"), POINTER, kernel("float a = 1; thread float* p = &a;")),
    (kernel("float a = 1; float& p = a;"), REFERENCE, kernel("float a = 1; thread float& p = a;")),
    (kernel("float a = 1; float& p = a;"), REFERENCE, kernel("float a = 1; auto& p = a;")),
    (kernel("uint a = *(uint*)x;"), POINTER, kernel("uint a = *(device uint*)x;")),
    (
        kernel("uint a = *reinterpret_cast<const uint*>(x);"),
        POINTER,
        kernel("uint a = *reinterpret_cast<const device uint*>(x);"),
    ),
    (
        kernel("auto f = [](float& a) { a = 1; };"),
        REFERENCE,
        kernel("auto f = [](thread float& a) { a = 1; };"),
    ),
    (
        "template <typename T> T f(float* p) { return T(*p); }",
        POINTER,
        "template <typename T> T f(T* p, T& q, device float*& r) { return *p; }",
    ),
    # program scope
    (
        "float table[2] = {1, 2};",
        "program scope variable must reside in constant address space",
        "constant float table[2] = {1, 2};",
    ),
    (
        "constexpr int n = 3;",
        "program scope variable must reside in constant address space",
        "constant constexpr int n = 3;",
    ),
    (
        "threadgroup float shared[32];",
        "program scope variable must reside in constant address space",
        "struct Forward; enum class Mode : uint { A, B }; constant Mode mode = Mode::A;",
    ),
    (
        "constant float pi;",
        "variable in constant address space must be initialized",
        "constant float pi = 3.14; constant float2 two{1, 2};",
    ),
    # types
    (
        kernel("double d = 1;"),
        "'double' is not supported in Metal",
        kernel("float doubled = 1;"),
    ),
    (
        kernel("long double d = 1;"),
        "'long double' is not supported in Metal",
        kernel("long d = 1;"),
    ),
    (kernel("long long d = 1;"), "'long long' is not supported in Metal", kernel("long d = 1;")),
    # statements and words
    (
        kernel("static int count = 0;"),
        "variables in function scope cannot be declared static",
        kernel("struct S { static int get() { return 1; } }; x[i] = S::get();"),
    ),
    (
        kernel("static constexpr int count = 0;"),
        "variables in function scope cannot be declared static",
        kernel("static constant constexpr int count = 0;"),
    ),
    (
        kernel("goto end; end: return;"),
        "'goto' is not supported in Metal",
        kernel("for (;;) { break; }"),
    ),
    (
        kernel("again: x[i] = 1;"),
        "labeled statements are not supported in Metal",
        kernel("switch (i) { case 0: x[i] = 1; break; default: x[i] = i ? 1 : 2; }"),
    ),
    (kernel('asm("nop");'), "illegal asm statement", kernel("")),
    (
        kernel("register int a = 1;"),
        "Metal does not support the 'register' storage class specifier",
        kernel("int registered = 1;"),
    ),
    (
        "constant thread_local int a = 1;",
        "Metal does not support the 'thread_local' storage class specifier",
        "constant int a = 1;",
    ),
    (kernel("throw 1;"), "'throw' is not supported in Metal", kernel("return;")),
    (kernel("try { } catch (...) { }"), "'try' is not supported in Metal", kernel("{ }")),
    (
        kernel("bool b = noexcept(x[0]);"),
        "'noexcept' is not supported in Metal",
        "float f() noexcept { return 1; } struct S { int g() const noexcept(true) { return 1; } };",
    ),
    (kernel("auto p = new float;"), "'new' is not supported in Metal", kernel("int renew = 1;")),
    (
        kernel("delete x;"),
        "'delete' is not supported in Metal",
        "struct S { S() = default; void f() = delete; };",
    ),
    (
        "struct S { virtual void f() {} };",
        "'virtual' is not supported in Metal",
        "struct B { int a; }; struct S : B { void f() {} }; union U { int a; float b; };",
    ),
    (
        kernel("auto y = dynamic_cast<device float*>(x);"),
        "'dynamic_cast' is not supported in Metal",
        kernel("auto y = static_cast<device float*>(x);"),
    ),
    (kernel("typeid(float);"), "'typeid' is not supported in Metal", kernel("")),
    (
        "void main() {}",
        "non-qualified function cannot be called 'main'",
        kernel("").replace("k(", "main("),
    ),
    (
        kernel("int n = i; float a[n];"),
        "variable length arrays are not supported in Metal",
        kernel("constexpr int n = 4; float a[n];"),
    ),
    # casts between spaces
    (
        kernel("float a[2]; thread float* t = a; auto p = (device float*)t;"),
        "C-style cast from 'thread float *' to 'device float *' converts between mismatching "
        "address spaces",
        kernel("float a[2]; thread float* t = a; auto p = (thread int*)t;"),
    ),
    (
        kernel("threadgroup float t[4]; auto p = (device float4*)(t + 1);"),
        "C-style cast from 'threadgroup float *' to 'device float4 *' converts between "
        "mismatching address spaces",
        kernel("threadgroup float t[4]; auto p = (threadgroup float4*)(t + 1);"),
    ),
    (
        kernel("auto p = reinterpret_cast<constant uint*>(x);"),
        "reinterpret_cast from 'device float *' to 'constant uint *' is not allowed",
        kernel("auto p = reinterpret_cast<device uint*>(x);"),
    ),
    (
        kernel("threadgroup float t[4]; device float* p = t;"),
        "cannot initialize a variable of type 'device float *' with an lvalue of type "
        "'threadgroup float *'",
        kernel("threadgroup float t[4]; threadgroup float* p = t; device float* q = x + i;"),
    ),
    (
        kernel("threadgroup float* p = &x[i];"),
        "cannot initialize a variable of type 'threadgroup float *' with an lvalue of type "
        "'device float *'",
        kernel("device float* p = &x[i];"),
    ),
    # kernels
    (
        "kernel int f(device int* x) { return 1; }",
        "invalid return type 'int' for kernel function",
        "kernel void f(device int* x) { return; }",
    ),
    (
        kernel("", f"{X}, int n"),
        "invalid type 'int' for input declaration in a kernel function",
        kernel("", f"{X}, constant int& n"),
    ),
    (
        "struct S { int a; };\n" + kernel("", f"{X}, S s"),
        "invalid type 'S' for input declaration in a kernel function",
        "struct S { int a; };\n" + kernel("", f"{X}, constant S& s"),
    ),
    (
        kernel("", f"{X}, uint n [[buffer(1)]]"),
        "type 'uint' (aka 'unsigned int') is not valid for attribute 'buffer'",
        kernel("", f"{X}, constant uint& n [[buffer(1)]]"),
    ),
    (
        kernel("", f"{X}, threadgroup float* t [[buffer(1)]]"),
        "invalid address space qualification for buffer pointee type 'threadgroup float'",
        kernel("", f"{X}, threadgroup float* t [[threadgroup(1)]]"),
    ),
    (
        kernel("", f"{X}, thread float* t"),
        "invalid address space qualification for buffer pointee type 'thread float'",
        kernel("", f"{X}, device float* t"),
    ),
    (
        kernel("", f"{X}, device float* t [[threadgroup(0)]]"),
        "type 'device float *' is not valid for attribute 'threadgroup'",
        kernel("", f"{X}, threadgroup float* t [[threadgroup(0)]]"),
    ),
    (
        kernel("", f"{X}, device float* y [[buffer(0)]]"),
        "cannot reserve 'buffer' resource location at index 0",
        kernel("", f"{X}, device float* y [[buffer(1)]]"),
    ),
    (
        kernel("", "device float* x [[buffer(31)]]"),
        "'buffer' attribute parameter is out of bounds: must be between 0 and 30",
        kernel("", "device float* x [[buffer(30)]]"),
    ),
    (
        kernel("", ", ".join(f"device float* x{n}" for n in range(32))),
        "'buffer' attribute parameter is out of bounds: must be between 0 and 30",
        kernel("", ", ".join(f"device float* x{n}" for n in range(31))),
    ),
    (
        kernel("", "device float* x [[buffer(n)]]"),
        "'buffer' attribute requires an integer constant",
        kernel("", "device float* x [[buffer(n)]]", "constant constexpr int n = 2;\n"),
    ),
    (
        kernel("", f"{X}, thread uint& i [[thread_position_in_grid]]"),
        "type 'uint &' is not valid for attribute 'thread_position_in_grid'",
        kernel("", f"{X}, const uint i [[thread_position_in_grid]]"),
    ),
    (
        kernel("", f"{X}, int i [[thread_position_in_grid]]"),
        "type 'int' is not valid for attribute 'thread_position_in_grid'",
        kernel("", f"{X}, metal::ushort3 i [[thread_position_in_grid]]"),
    ),
    (
        kernel("", f"{X}, float2 i [[thread_position_in_grid]]"),
        "type 'float2' is not valid for attribute 'thread_position_in_grid'",
        kernel("", f"{X}, uint2 i [[thread_position_in_grid]]"),
    ),
    (
        kernel("", f"{X}, uint4 i [[threads_per_grid]]"),
        "type 'uint4' is not valid for attribute 'threads_per_grid'",
        kernel("", f"{X}, uint3 i [[threads_per_grid]]"),
    ),
    (
        kernel("", f"{X}, uint2 i [[thread_index_in_simdgroup]]"),
        "type 'uint2' is not valid for attribute 'thread_index_in_simdgroup'",
        kernel("", f"{X}, unsigned int i [[thread_index_in_simdgroup]]"),
    ),
    (
        "void f() { threadgroup float t[4]; }",
        "non-kernel function variable cannot be declared in threadgroup address space",
        "void f(threadgroup float* t) { threadgroup float* u = t; }",
    ),
    # overloads that do not exist
    (
        kernel("x[i] = simd_shuffle(bfloat(1), 1);"),
        "no matching function for call to 'simd_shuffle'",
        kernel("x[i] = simd_shuffle(float(1), 1);"),
    ),
    (
        kernel("x[i] = simd_shuffle(ulong(1), 1);"),
        "no matching function for call to 'simd_shuffle'",
        kernel("x[i] = simd_shuffle(uint(1), 1);"),
    ),
    (
        kernel("bfloat b = half(1);"),
        "cannot initialize a variable of type 'bfloat' with an rvalue of type 'half'",
        kernel("bfloat b = bfloat(half(1));"),
    ),
    # the host under the kernel
    *(
        (kernel(f"{call};"), f"'{call.partition('(')[0]}' is not supported in Metal", kernel(twin))
        for call, twin in [
            ("__builtin_trap()", "if (i > 9) __builtin_unreachable();"),
            ("__builtin_debugtrap()", "__builtin_assume(i < 9);"),
            ("__builtin_abort()", "x[i] = __builtin_expect(i, 1);"),
            ("__builtin_longjmp(x, 1)", "x[i] = __builtin_popcount(i);"),
            ("__builtin_alloca(8)", "x[i] = __builtin_offsetof(float4, y);"),
            ("__builtin_frame_address(0)", "x[i] = __builtin_bswap32(i);"),
            ("__builtin_return_address(0)", "x[i] = __builtin_clz(i);"),
            ("__builtin_memcpy(x, x + 1, 4)", "x[i] = __builtin_isnan(x[i]);"),
            ("__builtin_memset(x, 0, 4)", "x[i] = __builtin_fabsf(x[i]);"),
            ("__builtin_ia32_pause()", "x[i] = __builtin_bit_cast(float, i);"),
            ("__sync_synchronize()", "threadgroup_barrier(mem_flags::mem_device);"),
            ("__atomic_thread_fence(5)", "simdgroup_barrier(mem_flags::mem_none);"),
        ]
    ),
    *(
        (
            f"{spelling} void f() {{}}",
            f"attribute '{name}' is not supported in Metal",
            f"constant bool {name} [[function_constant(0)]];",
        )
        for name, spelling in [
            ("constructor", "__attribute__((constructor))"),
            ("destructor", "[[gnu::destructor]]"),
            ("section", '__attribute__((noinline, __section__(".init_array")))'),
            ("alias", '__attribute__((alias("g")))'),
            ("ifunc", '[[gnu::ifunc("g")]]'),
            ("naked", "__declspec(naked)"),
            ("target", '__attribute__((target("avx512f")))'),
            ("weak", "__attribute__((weak))"),
        ]
    ),
    (
        '#line 3 "/etc/passwd"\nfloat f();',
        "a '#line' directive that names a file is not supported",
        "#line 30\nfloat f();",
    ),
    (
        'constant uchar t[] = {\n#embed "/etc/passwd"\n};',
        "'#embed' is not supported in Metal",
        '// #embed "/etc/passwd"\nconstant uchar t[] = {1};',
    ),
    (
        kernel("ulong a = as_type<ulong>(x);"),
        "static assertion failed due to requirement '!__is_pointer(float *)': "
        "as_type: pointers are cast, not retyped",
        kernel("ulong a = (ulong)x; device float* y = (device float*)a;"),
    ),
]


@pytest.mark.parametrize(
    ("refused", "message", "accepted"), ROWS, ids=[str(number) for number in range(len(ROWS))]
)
def test_row(refused: str, message: str, accepted: str) -> None:
    with pytest.raises(KernelSyntaxError) as error:
        check_all(prepared(refused))
    lines = str(error.value).splitlines()
    assert any(
        line.startswith("<shader>:") and line.endswith(f"error: {message}") for line in lines
    )
    check_all(prepared(accepted))


def test_places_of_refusals() -> None:
    with pytest.raises(KernelSyntaxError) as error:
        prepared(kernel("float a = 1;\n  float *p = &a;\n  double d = 2;"))
    assert str(error.value) == (
        "<shader>:5:9: error: pointer type must have explicit address space qualifier\n"
        "  float *p = &a;\n"
        "        ^\n"
        "<shader>:6:3: error: 'double' is not supported in Metal\n"
        "  double d = 2;\n"
        "  ^\n"
        "2 errors generated."
    )


def test_refusal_inside_a_macro_is_said_once_where_it_is_used() -> None:
    source = "#define BOTH(a, b) double a; double b;\n" + kernel("BOTH(p, q)")
    with pytest.raises(KernelSyntaxError) as error:
        prepared(source)
    assert str(error.value).count("error:") == 1
    assert "<shader>:5:3: error: 'double'" in str(error.value)


def test_multiplication_is_no_pointer() -> None:
    body = "uint a = sizeof(float) * 2; float b = float(a) * x[0]; b = (float)*x * b; x[i] = a & i;"
    compiled(kernel(body))


def test_namespace_metal_needs_a_header() -> None:
    with pytest.raises(KernelSyntaxError, match="<shader>:1:17: error: expected namespace name"):
        prepare(Source("using namespace metal;\nkernel void k(device float* x) {}\n"))
    with pytest.raises(KernelSyntaxError, match="use of undeclared identifier 'metal'"):
        prepare(Source("kernel void k(device float* x) { x[0] = metal::exp(x[0]); }\n"))
    check_all(prepare(Source("kernel void k(device float* x) { x[0] = 1; }\n")))


def test_parameters_that_constants_remove_may_share_an_index() -> None:
    source = "constant bool a [[function_constant(0)]];\nconstant bool b = !a;\n"
    parameters = (
        "device float* x [[buffer(0), function_constant(a)]], "
        "device half* y [[buffer(0), function_constant(b)]]"
    )
    check_all(prepared(kernel("", parameters, source)))


def test_vectors_of_different_lengths_are_a_warning() -> None:
    parameters = f"{X}, uint2 a [[thread_position_in_grid]], uint3 b [[threads_per_grid]]"
    (warning,) = prepared(kernel("", parameters)).warnings
    assert warning.startswith("<shader>:3:")
    assert "should have the same length" in warning


BFLOAT = "assigning to 'bfloat' from incompatible type 'float'"
CONST = "const device float* x [[buffer(0)]], device bfloat* y, uint i [[thread_position_in_grid]]"
INTO_BFLOAT = [
    kernel("bfloat b = x[i];"),
    kernel("y[i] = x[i];", CONST),
    kernel("y[i] = y[i] * 2.0f;", CONST),
    kernel("y[i] += 1.0f;", CONST),
    kernel("bfloat b = 0.0; b = 1.0f; b = INFINITY;"),
    kernel("bfloat b; b = 1e10f;"),
    kernel("bfloat b[2] = {1.0f, bfloat(2.0f)};"),
    kernel("bfloat b = x[i] > 0 ? y[i] : 0.0f;", CONST),
    kernel("f(0.5f);", before="bfloat f(bfloat b) { return b; }\n"),
    kernel("f<bfloat>(1);", before="template <typename T> T f(float a) { return a; }\n"),
    kernel("f<bfloat>();", before="template <typename T> T f() { T a = 0.0f; return a; }\n"),
]
OTHER_BFLOAT = kernel(
    "bfloat b = bfloat(x[i]); b = static_cast<bfloat>(0.5f); b = (bfloat)x[i]; b = 1; b = i;\n"
    "  b = b * 2 + b; b = bfloat(exp(b)); b = 1.0bf; b = HUGE_VALBF; b = true; x[i] = b;\n"
    "  half h = 0.1f; half a[2] = {0.1f, 2}; half g = INFINITY; bfloat4 v(0.5f); v = bfloat4(1);\n"
    "  float c{0.5f};"
    "  constexpr float d = 0.5f; float e[int(d * 4)]; x[i] += bfloat(d) + a[0] + e[0] + c;"
)


@pytest.mark.parametrize("number", range(len(INTO_BFLOAT)))
def test_float_becomes_bfloat_only_when_asked(number: int) -> None:
    with pytest.raises(KernelSyntaxError, match=BFLOAT):
        check_all(prepared(INTO_BFLOAT[number]))


def test_what_becomes_bfloat_without_a_cast() -> None:
    check_all(prepared(OTHER_BFLOAT))
    with pytest.raises(KernelSyntaxError, match="bfloat"):
        check_all(prepared(kernel("half h = 1; bfloat b = h;")))
    with pytest.raises(KernelSyntaxError, match="bfloat"):
        check_all(prepared(kernel("bfloat b = 1.0h;")))


def test_places_of_floats_that_become_bfloat() -> None:
    source = "template <typename T> T f(float a) { return a; }\n"
    source += kernel("bfloat b = x[i]; bfloat c = bfloat(x[i]); half h = x[i]; b = f<bfloat>(1);")
    with pytest.raises(KernelSyntaxError) as caught:
        check_all(prepared(source))
    lines = str(caught.value).splitlines()
    assert [line for line in lines if "error:" in line] == [
        f"<shader>:{place}: error: {BFLOAT}" for place in ("5:14", "3:45")
    ]
    assert "write bfloat(x) or static_cast<bfloat>(x)" in str(caught.value)
    # A string is no number, whatever it says.
    logged = "#include <metal_logging>\n" + kernel('os_log_default.log("%5.3f 1.0f", x[i]);')
    check_all(prepared(logged))


def test_unknown_attributes_are_named() -> None:
    with pytest.raises(KernelSyntaxError) as caught:
        prepared(kernel("x[i] = 1;", f"{X}, uint i [[thread_position]]"))
    assert (
        "3:55: error: unknown attribute 'thread_position' ignored; did you mean "
        "'thread_position_in_grid'?" in str(caught.value)
    )
    with pytest.raises(KernelSyntaxError, match=r"'bufer' ignored; did you mean 'buffer'\?"):
        prepared(kernel("", "device float* x [[bufer(0)]]"))
    with pytest.raises(KernelSyntaxError, match="unknown attribute 'zzzz' ignored\n"):
        prepared(kernel("", "device float* x [[zzzz]]"))
    (warning,) = prepared("[[nodiscad]] float f() { return 1; }\n" + kernel("")).warnings
    assert "warning: unknown attribute 'nodiscad' ignored; did you mean 'nodiscard'?" in warning
    known = "[[nodiscard]] [[clang::noinline]] float f([[maybe_unused]] float a) { return 1; }\n"
    assert prepared(known + kernel("")).warnings == ()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (kernel("", f"{X}, texture2d<float> t [[texture(0)]]"), "textures"),
        (kernel("", f"{X}, texture2d<float, access::write> t"), "textures"),
        (kernel("", f"{X}, sampler s [[sampler(0)]]"), "samplers"),
        ("kernel void k(float4 v [[stage_in]]) {}", "stage_in"),
        ("vertex float4 v(uint i [[vertex_id]]) { return 0; }", "vertex functions"),
        ("[[fragment]] float4 f() { return 0; }", "fragment functions"),
        (kernel("raytracing::intersector<> query;"), "ray tracing"),
        (kernel("", f"{X}, visible_function_table<float(float)> t"), "visible function tables"),
        ("kernel void k(tensor<device half, dextents<int, 2>> a [[buffer(0)]]) {}", "tensors"),
    ],
)
def test_what_is_not_supported_is_named(source: str, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        prepare(Source(HEADER + source))


def test_own_names_may_look_like_unsupported_types() -> None:
    compiled(kernel("float sampler = 1, tensor = 2; x[i] = sampler < tensor ? sampler : tensor;"))
