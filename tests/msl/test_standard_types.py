"""numeric_limits, type traits, array, utility, functional, uniform, assert and the header names."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from vector_model import FLOATS, INTEGERS, SCALARS, accepted, named, refusal, same, values_of

# ---- Limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", INTEGERS)
def test_limits_of_integers(scalar: str) -> None:
    limits = np.iinfo(SCALARS[scalar])  # type: ignore[arg-type]
    names = ("min", "max", "lowest", "epsilon", "infinity")
    got = values_of(scalar, [f"numeric_limits<{scalar}>::{name}()" for name in names])
    assert got.tolist() == [limits.min, limits.max, limits.min, 0, 0]
    macros = {"char": "CHAR", "short": "SHRT", "int": "INT", "long": "LONG"}
    name = macros[scalar.removeprefix("u")]
    bounds = [f"U{name}_MAX"] if scalar.startswith("u") else [f"{name}_MAX", f"{name}_MIN"]
    expected = [limits.max] if scalar.startswith("u") else [limits.max, limits.min]
    assert values_of(scalar, bounds).tolist() == expected


@pytest.mark.parametrize("scalar", FLOATS)
def test_limits_of_floats_agree_with_torch(scalar: str) -> None:
    info = torch.finfo({"half": torch.float16, "bfloat": torch.bfloat16}.get(scalar, torch.float32))
    prefix = {"half": "HALF", "bfloat": "BFLT", "float": "FLT"}[scalar]
    names = ("max", "lowest", "min", "epsilon", "denorm_min", "round_error", "infinity")
    calls = [f"numeric_limits<{scalar}>::{name}()" for name in names]
    macros = [f"{prefix}_MAX", f"{prefix}_MIN", f"{prefix}_EPSILON", f"{prefix}_TRUE_MIN"]
    smallest = info.tiny * info.eps
    expected = [info.max, info.min, info.tiny, info.eps, smallest, 0.5, np.inf]
    expected += [info.max, info.tiny, info.eps, smallest]
    got = values_of(scalar, calls + macros)
    assert same(got.astype(np.float32), np.array(expected, np.float32))
    nans = [f"numeric_limits<{scalar}>::{name}_NaN()" for name in ("quiet", "signaling")]
    assert np.all(np.isnan(values_of(scalar, [*nans, f"{scalar}(NAN)"])))  # type: ignore[arg-type]


def test_limits_count_digits_and_exponents() -> None:
    members = ("digits", "digits10", "max_digits10", "min_exponent", "max_exponent", "radix")
    expected = {
        "half": [11, 3, 5, -13, 16, 2],
        "bfloat": [8, 2, 4, -125, 128, 2],
        "float": [24, 6, 9, -125, 128, 2],
        "int": [31, 9, 0, 0, 0, 2],
        "ulong": [64, 19, 0, 0, 0, 2],
        "char": [7, 2, 0, 0, 0, 2],
        "bool": [1, 0, 0, 0, 0, 2],
    }
    expressions = [f"numeric_limits<{name}>::{part}" for name in expected for part in members]
    assert values_of("int", expressions).tolist() == list(itertools.chain(*expected.values()))
    flags = ("is_specialized", "is_signed", "is_integer", "has_infinity", "is_iec559", "is_modulo")
    truths = {
        "float": [1, 1, 0, 1, 1, 0],
        "int": [1, 1, 1, 0, 0, 0],
        "uint": [1, 0, 1, 0, 0, 1],
        "const half": [1, 1, 0, 1, 1, 0],
        "float4": [0, 0, 0, 0, 0, 0],
    }
    expressions = [f"numeric_limits<{name}>::{part}" for name in truths for part in flags]
    assert values_of("int", expressions).tolist() == list(itertools.chain(*truths.values()))


# ---- Traits --------------------------------------------------------------------------------------

TRUE_TRAITS = """
is_same_v<int, int32_t>; !is_same_v<int, uint>; is_same<float, float>::value; is_void_v<void>;
is_floating_point_v<half>; is_floating_point_v<bfloat>; is_floating_point_v<const float>;
is_floating_point_v<float4>; !is_floating_point_v<int>; is_integral_v<bool>; is_integral_v<ulong>;
is_integral_v<char3>; !is_integral_v<half>; is_arithmetic_v<bfloat2>;
!is_arithmetic_v<device float*>; is_scalar_v<float>; is_scalar_v<device float*>;
!is_scalar_v<float4>; !is_scalar_v<packed_float3>; is_vector_v<half3>; is_vector_v<const int2>;
!is_vector_v<int>; !is_vector_v<packed_int2>; is_signed_v<int>; is_signed_v<half>;
!is_signed_v<uint>; is_unsigned_v<uchar>; is_unsigned_v<bool>; is_signed_v<char>;
is_signed_v<int4>; is_unsigned_v<ushort3>; is_pointer_v<device int*>; !is_pointer_v<int>;
is_array_v<int[3]>; is_class_v<Base>; is_enum_v<Colour>; is_union_v<Either>;
is_const_v<const int>; !is_const_v<int>; is_reference_v<thread int&>; is_base_of_v<Base, Derived>;
!is_base_of_v<Derived, Base>; is_convertible_v<int, float>; !is_convertible_v<int4, float4>;
is_convertible_v<float, float4>; !is_convertible_v<float4, float>;
is_trivially_copyable_v<float4>; is_trivially_copyable_v<float3x3>;
is_constructible_v<float4, int4>; is_default_constructible_v<half4>;
is_same_v<conditional_t<true, int, float>, int>;
is_same_v<conditional_t<false, int, float>, float>; is_same_v<enable_if_t<true, int>, int>;
is_same_v<remove_cv_t<const volatile int>, int>; is_same_v<remove_const_t<const int>, int>;
is_same_v<remove_reference_t<thread int&>, int>; is_same_v<remove_pointer_t<device int*>, int>;
is_same_v<decay_t<const int>, int>; is_same_v<remove_extent_t<int[4]>, int>;
is_same_v<add_const_t<int>, const int>; is_same_v<make_unsigned_t<int>, uint>;
is_same_v<make_signed_t<uchar>, char>; is_same_v<make_unsigned_t<char>, uchar>;
is_same_v<make_unsigned_t<long2>, ulong2>; is_same_v<make_signed_t<uchar4>, char4>;
is_same_v<underlying_type_t<Colour>, ushort>; conjunction_v<true_type, is_same<int, int>>;
!conjunction_v<true_type, false_type>; disjunction_v<false_type, true_type>; !disjunction_v<>;
negation_v<false_type>; integral_constant<int, 3>::value == 3; integral_constant<int, 3>{} == 3;
rank_v<int[2][3]> == 2; extent_v<int[2][3], 1> == 3; alignment_of_v<float3> == 16;
is_same_v<float4::element_type, float>;
"""


def test_traits_say_what_metal_says() -> None:
    prelude = """
struct Base {}; struct Derived : Base { int x; };
enum class Colour : ushort { red };
union Either { int i; float f; };
"""
    claims = [text.strip() for text in TRUE_TRAITS.replace("\n", " ").split(";") if text.strip()]
    checks = "\n".join(f"static_assert({claim});" for claim in claims)
    assert refusal("", prelude + checks) is None
    wrong = [f"static_assert(!({claim}));" for claim in claims]
    assert accepted(wrong[:20], prelude) == []


def test_traits_of_every_vector_type_follow_its_components() -> None:
    kinds = named(SCALARS)
    checks = []
    for kind in kinds:
        scalar = kind[:-1]
        checks.append(
            f"static_assert(is_floating_point_v<{kind}> == is_floating_point_v<{scalar}>);"
        )
        checks.append(f"static_assert(is_integral_v<{kind}> == is_integral_v<{scalar}>);")
        checks.append(f"static_assert(is_signed_v<{kind}> == is_signed_v<{scalar}>);")
        checks.append(f"static_assert(is_vector_v<{kind}> && !is_scalar_v<{kind}>);")
        checks.append(f"static_assert(is_trivially_copyable_v<{kind}>);")
    assert refusal("", "\n".join(checks)) is None


def test_enable_if_chooses_overloads() -> None:
    prelude = """
template <typename T, enable_if_t<is_integral_v<T>, bool> = true> int kind(T) { return 1; }
template <typename T, enable_if_t<is_floating_point_v<T>, bool> = true> int kind(T) { return 2; }
template <typename T, int N> constexpr int count(vec<T, N>) { return N; }
template <typename T> struct of { enum { size = 1 }; };
template <typename T, int N> struct of<vec<T, N>> { enum { size = N }; };
"""
    expressions = ["kind(1)", "kind(1.0f)", "kind(half4(1))", "kind(uchar2(1))", "count(half3(1))"]
    expressions += ["of<float4>::size", "of<float>::size", "count(float4(1).xyz)"]
    assert values_of("int", expressions, prelude).tolist() == [1, 2, 2, 1, 3, 4, 1, 3]


# ---- Containers and helpers ----------------------------------------------------------------------


def test_array_holds_its_elements() -> None:
    prelude = """
constant array<int, 4> four = {1, 2, 3, 4};
int sum() { int total = 0; for (int value : four) total += value; return total; }
int bound() { auto [a, b, c, d] = four; return a * 1000 + b * 100 + c * 10 + d; }
int changed() {
  array<int, 3> all = {7, 8, 9};
  all[1] = 5;
  all.back() += all.front();
  thread auto& [a, b, c] = all;
  a = 1;
  return all[0] * 10000 + all[1] * 100 + all[2];
}
int filled() { array<float2, 3> all; all.fill(float2(2, 3)); return all[2].y + all.size(); }
int through(array_ref<int> all) { return all[0] + int(all.size()); }
"""
    expressions = ["sum()", "bound()", "changed()", "filled()", "four.size()", "four.empty()"]
    expressions += ["four == array<int, 4>{1, 2, 3, 4}", "sizeof(array<float3, 2>)", "get<2>(four)"]
    expressions += ["through(four)", "*(four.end() - 1)"]
    expected = [10, 1234, 10516, 6, 4, 0, 1, 32, 3, 5, 4]
    assert values_of("int", expressions, prelude).tolist() == expected


def test_utility_and_functional() -> None:
    prelude = """
int swapped() { int a = 1, b = 2; swap(a, b); return a * 10 + b; }
float swapped_vectors() { float4 a(1), b(2); swap(a, b); return a.x * 10 + b.w; }
int exchanged() { int a = 1; int before = exchange(a, 5); return a * 10 + before; }
int paired() { auto p = make_pair(3, 4.5f); auto [a, b] = p; return a * 100 + int(b * 10); }
template <int... Values> int add(integer_sequence<int, Values...>) { return (0 + ... + Values); }
"""
    expressions = ["swapped()", "swapped_vectors()", "exchanged()", "paired()"]
    expressions += ["add(make_integer_sequence<int, 5>())", "make_pair(1, 2) < make_pair(1, 3)"]
    expressions += ["plus<int>()(2, 3)", "multiplies<>()(2, 3)", "less<float>()(2, 3)"]
    expressions += ["negate<int>()(2)", "bit_xor<uint>()(6, 3)", "logical_and<bool>()(true, false)"]
    expected = [21, 21, 51, 345, 10, 1, 5, 6, 1, -2, 5, 0]
    assert values_of("int", expressions, prelude).tolist() == expected


def test_uniform_values_mix_with_others() -> None:
    prelude = """
float mixed() { uniform<float> u = make_uniform(2.0f); float4 v(3); return (v * u).x + u; }
int counted() {
  uniform<int> total = 0;
  for (uniform<int> i = 0; i < 4; ++i) total += i;
  return total;
}
template <typename T> bool is_uniform(T) { return is_same_v<T, uniform<int>>; }
"""
    expressions = ["mixed()", "counted()", "is_uniform(make_uniform(1) + make_uniform(2))"]
    expressions += [
        "is_uniform(make_uniform(1) + 2)",
        "make_uniform(3) * 4",
        "int(make_uniform(7))",
    ]
    assert values_of("int", expressions, prelude).tolist() == [8, 6, 1, 0, 12, 7]


def test_assert_is_compiled_but_with_ndebug_not_evaluated() -> None:
    prelude = "#define NDEBUG\n#include <metal_assert>\n"
    prelude += "int fails(thread int& count) { assert(++count < 0); assert(false); return count; }"
    prelude += "\nint none() { int count = 3; return fails(count); }"
    assert values_of("int", ["none()"], prelude).tolist() == [3]
    assert refusal("assert(undeclared_name);") is not None


# ---- Names of headers ----------------------------------------------------------------------------

HARMLESS = """
metal_array metal_assert metal_atomic metal_common metal_compute metal_config metal_extended_vector
metal_functional metal_geometric metal_graphics metal_imageblocks metal_integer metal_limits
metal_logging metal_math metal_matrix metal_numeric metal_pack metal_packed_vector metal_pixel
metal_quadgroup metal_relational metal_simdgroup metal_simdgroup_matrix metal_texture
metal_type_traits metal_types metal_uniform metal_utility simd/simd.h
"""


def test_every_header_can_be_included_by_name() -> None:
    includes = "\n".join(f"#include <{name}>" for name in HARMLESS.split())
    names = "simd::float4 a(1); simd_float3 b(1); vector_float2 c(1); matrix_float4x4 d(1);"
    assert refusal(f"{names} out[0] = a.x + b.x + c.x + d[0][0];", includes) is None


def test_headers_of_what_does_not_run_say_so() -> None:
    message = refusal("", "#include <metal_raytracing>")
    assert message is not None
    assert "not supported by anymetal" in message
