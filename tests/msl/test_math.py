"""metal_math against float64: every function, type and vector size, within Metal's error bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from function_model import SIZES, Doubles, evaluate, samples, ulps, vector, wide, worst
from vector_model import Array, refusal, same, values_of

from anymetal.engines.cpu.target import HOST
from anymetal.msl import clang
from anymetal.nouns import Dialect

COUNT = 6000
ROUNDED = 0.5 + 1e-6  # correctly rounded: the reference itself is off by a little
EXACT = 0.0


def _sinpi(x: Doubles) -> Doubles:
    """Folded to an eighth of a turn, where sin and cos of the rounded angle are accurate."""
    turn = np.abs(np.fmod(x, 2))
    half = np.where(turn > 1, turn - 1, turn)
    small = np.where(half > 0.5, 1 - half, half)
    value = np.where(small <= 0.25, np.sin(np.pi * small), np.cos(np.pi * (0.5 - small)))
    return np.copysign(1, x) * np.where((turn > 1) & (value != 0), -value, value)


def _cospi(x: Doubles) -> Doubles:
    turn = np.abs(np.fmod(x, 2))
    half = np.where(turn > 1, 2 - turn, turn)
    small = np.where(half > 0.5, 1 - half, half)
    value = np.where(small <= 0.25, np.cos(np.pi * small), np.sin(np.pi * (0.5 - small)))
    return np.where((half > 0.5) & (value != 0), -value, value)


def _tanpi(x: Doubles) -> Doubles:
    """Zeros with the sign of x; at the jumps the limit from below for positive x."""
    sine, cosine = _sinpi(x), _cospi(x)
    value = np.where(sine == 0, sine, sine / cosine)
    return np.where((cosine == 0) & ~np.isnan(x), np.copysign(np.inf, x), value)


def _round(x: Doubles) -> Doubles:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _fract(x: Doubles) -> Doubles:
    return x - np.floor(x)


def _fmin(x: Doubles, y: Doubles) -> Doubles:
    return np.where((y < x) | np.isnan(x), y, x)


def _fmax(x: Doubles, y: Doubles) -> Doubles:
    return np.where((x < y) | np.isnan(x), y, x)


def _fdim(x: Doubles, y: Doubles) -> Doubles:
    return np.where(x <= y, 0.0, x - y)


def _powr(x: Doubles, y: Doubles) -> Doubles:
    return np.where(x < 0, np.nan, np.power(np.abs(x), y))


def _fma(x: Doubles, y: Doubles, z: Doubles) -> Doubles:
    return x * y + z


@dataclass(frozen=True)
class Function:
    """Its name, what it computes, and the error in ulp that Metal allows for float and for half."""

    name: str
    exact: Callable[..., Doubles]
    float_ulps: float
    half_ulps: float
    arguments: int = 1

    def allowed(self, scalar: str) -> float:
        return self.float_ulps if scalar == "float" else self.half_ulps


FUNCTIONS = (
    Function("abs", np.abs, EXACT, EXACT),
    Function("acos", np.arccos, 4, 1),
    Function("acosh", np.arccosh, 4, 1),
    Function("asin", np.arcsin, 4, 1),
    Function("asinh", np.arcsinh, 4, 1),
    Function("atan", np.arctan, 5, 1),
    Function("atanh", np.arctanh, 5, 1),
    Function("ceil", np.ceil, EXACT, EXACT),
    Function("cos", np.cos, 4, 1),
    Function("cosh", np.cosh, 4, 1),
    Function("cospi", _cospi, 4, 1),
    Function("exp", np.exp, 4, 1),
    Function("exp10", lambda x: np.power(10.0, x), 4, 1),
    Function("exp2", np.exp2, 4, 1),
    Function("fabs", np.abs, EXACT, EXACT),
    Function("floor", np.floor, EXACT, EXACT),
    Function("log", np.log, 4, 1),
    Function("log10", np.log10, 4, 1),
    Function("log2", np.log2, 4, 1),
    Function("rint", np.rint, EXACT, EXACT),
    Function("round", _round, EXACT, EXACT),
    Function("rsqrt", lambda x: 1 / np.sqrt(x), ROUNDED, ROUNDED),
    Function("sin", np.sin, 4, 1),
    Function("sinh", np.sinh, 4, 1),
    Function("sinpi", _sinpi, 4, 1),
    Function("sqrt", np.sqrt, ROUNDED, ROUNDED),
    Function("tan", np.tan, 6, 1),
    Function("tanh", np.tanh, 5, 1),
    Function("tanpi", _tanpi, 6, 1),
    Function("trunc", np.trunc, EXACT, EXACT),
    Function("atan2", np.arctan2, 6, 1, 2),
    Function("copysign", np.copysign, EXACT, EXACT, 2),
    Function("divide", np.divide, ROUNDED, ROUNDED, 2),
    Function("fdim", _fdim, ROUNDED, ROUNDED, 2),
    Function("fmax", _fmax, EXACT, EXACT, 2),
    Function("fmin", _fmin, EXACT, EXACT, 2),
    Function("fmod", np.fmod, EXACT, EXACT, 2),
    Function("max", _fmax, EXACT, EXACT, 2),
    Function("min", _fmin, EXACT, EXACT, 2),
    Function("pow", np.power, 16, 1, 2),
    Function("powr", _powr, 16, 1, 2),
    Function("fma", _fma, ROUNDED, ROUNDED, 3),
    Function("fmax3", lambda x, y, z: _fmax(x, _fmax(y, z)), EXACT, EXACT, 3),
    Function("fmin3", lambda x, y, z: _fmin(x, _fmin(y, z)), EXACT, EXACT, 3),
    Function("max3", lambda x, y, z: _fmax(x, _fmax(y, z)), EXACT, EXACT, 3),
    Function("min3", lambda x, y, z: _fmin(x, _fmin(y, z)), EXACT, EXACT, 3),
)


def call(name: str, arguments: int) -> str:
    return f"{name}({', '.join('xyz'[:arguments])})"


CALLS = [call(function.name, function.arguments) for function in FUNCTIONS]


def three_inputs(scalar: str) -> tuple[Array, Array, Array]:
    """Pairs and triples: of everything, of equals, and with every edge against every other."""
    x, y, z = (samples(scalar, COUNT, seed) for seed in (1, 2, 3))
    rng = np.random.default_rng(4)
    y, z = rng.permutation(y), rng.permutation(z)
    y[1::50], z[2::50] = x[1::50], x[2::50]
    return x, y, z


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", ["float", "half"])
def test_every_function_is_as_accurate_as_metal_says(scalar: str, size: int) -> None:
    inputs = three_inputs(scalar)
    doubles = tuple(wide(values) for values in inputs)
    results = evaluate(scalar, size, CALLS, inputs)
    too_far = []
    for function, got in zip(FUNCTIONS, results, strict=True):
        with np.errstate(all="ignore"):
            exact = function.exact(*doubles[: function.arguments])
        error, where = worst(scalar, got, exact, inputs[: function.arguments])
        if error > function.allowed(scalar):
            too_far.append(f"{function.name}: {error:.2f} ulp, {where}")
    assert not too_far, "\n".join(too_far)


def test_half_functions_hold_for_every_half() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    unary = [function for function in FUNCTIONS if function.arguments == 1]
    results = evaluate("half", 1, [call(function.name, 1) for function in unary], (every,))
    for function, got in zip(unary, results, strict=True):
        with np.errstate(all="ignore"):
            exact = function.exact(wide(every))
        error, where = worst("half", got, exact, (every,))
        assert error <= function.half_ulps, f"{function.name}: {error} ulp, {where}"


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("space", ["fast", "precise"])
def test_fast_and_precise_hold_the_same_functions_on_float(space: str, size: int) -> None:
    inputs = three_inputs("float")
    plain = evaluate("float", size, CALLS, inputs)
    chosen = evaluate("float", size, [f"{space}::{text}" for text in CALLS], inputs)
    assert same(plain, chosen)


def test_fast_math_leaves_library_functions_accurate() -> None:
    """-ffast-math is for the author's arithmetic: reassociation would ruin ours."""
    inputs = three_inputs("float")
    names = ("exp", "exp2", "log", "sin", "cos", "tan", "tanh", "sinh", "rint", "pow")
    chosen = [function for function in FUNCTIONS if function.name in names]
    calls = [call(function.name, function.arguments) for function in chosen]
    results = evaluate("float", 1, calls, inputs, fast_math=True)
    for function, got in zip(chosen, results, strict=True):
        with np.errstate(all="ignore"):
            exact = function.exact(*(wide(values) for values in inputs[: function.arguments]))
        zeros = (exact == 0) & (got == 0)  # fast math does not promise the sign of a zero
        errors = np.where(zeros, 0, ulps("float", got, exact))
        assert errors.max() <= function.float_ulps, function.name


SECOND_RESULTS = """
template <class T> T modf_whole(T x) { T whole; modf(x, whole); return whole; }
template <class T> T modf_rest(T x) { T whole; return modf(x, whole); }
template <class T> T sincos_cosine(T x) { T cosine; sincos(x, cosine); return cosine; }
template <class T> T sincos_sine(T x) { T cosine; return sincos(x, cosine); }
"""
EXPONENTS = """
INT frexp_exponent(FLOAT x) { INT exponent; frexp(x, exponent); return exponent; }
FLOAT frexp_mantissa(FLOAT x) { INT exponent; return frexp(x, exponent); }
"""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", ["float", "half"])
def test_functions_with_two_results(scalar: str, size: int) -> None:
    x = samples(scalar, COUNT, 5)
    exact = wide(x)
    names = ("modf_whole", "modf_rest", "sincos_cosine", "sincos_sine", "cos", "sin")
    calls = [call(name, 1) for name in names]
    results = evaluate(scalar, size, calls, (x,), prelude=SECOND_RESULTS)
    whole, rest, cosine, sine, cos, sin = results
    with np.errstate(all="ignore"):
        exact_rest = np.copysign(np.where(np.isinf(exact), 0, exact - np.trunc(exact)), exact)
        assert ulps(scalar, whole, np.trunc(exact)).max() == 0
        assert ulps(scalar, rest, exact_rest).max() == 0
    assert same(cosine, cos)
    assert same(sine, sin)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", ["float", "half"])
def test_exponents(scalar: str, size: int) -> None:
    x = samples(scalar, COUNT, 6)
    exact = wide(x)
    names = f"#define FLOAT {vector(scalar, size)}\n#define INT {vector('int', size)}\n"
    calls = ["frexp_exponent(x)", "ilogb(x)"]
    exponent, logarithm = evaluate(scalar, size, calls, (x,), "int", names + EXPONENTS)
    mantissa = evaluate(scalar, size, ["frexp_mantissa(x)"], (x,), prelude=names + EXPONENTS)[0]
    exact_mantissa, exact_exponent = np.frexp(exact)
    finite = np.isfinite(exact)
    assert ulps(scalar, mantissa, exact_mantissa).max() == 0
    assert np.array_equal(exponent[finite], exact_exponent[finite])
    assert not exponent[~finite].any()
    ordinary = finite & (exact != 0)
    assert np.array_equal(logarithm[ordinary], exact_exponent[ordinary] - 1)
    assert (logarithm[exact == 0] == -(2**31)).all()
    assert (logarithm[~finite] == 2**31 - 1).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", ["float", "half"])
def test_ldexp_rounds_once_and_nextafter_steps_once(scalar: str, size: int) -> None:
    x, y, _ = three_inputs(scalar)
    powers = (-400, -149, -130, -30, -24, -1, 0, 1, 15, 30, 127, 256, 400)
    calls = [f"ldexp(x, {power})" for power in powers]
    results = evaluate(scalar, size, [*calls, "nextafter(x, y)"], (x, y))
    for power, got in zip(powers, results, strict=False):
        with np.errstate(invalid="ignore"):
            exact = np.ldexp(wide(x), power)
        assert ulps(scalar, got, exact).max() <= ROUNDED, power
    with np.errstate(all="ignore"):
        assert same(results[-1], np.nextafter(x, y))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", ["float", "half"])
def test_fract_stays_below_one(scalar: str, size: int) -> None:
    x = samples(scalar, COUNT, 7)
    got = evaluate(scalar, size, ["fract(x)"], (x,))[0]
    below_one = np.nextafter(np.array(1, x.dtype), np.array(0, x.dtype))
    with np.errstate(all="ignore"):
        exact = np.minimum(wide(x) - np.floor(wide(x)), float(below_one))
    assert ulps(scalar, got, exact).max() <= ROUNDED
    assert not (got >= 1).any()


@pytest.mark.parametrize("name", ["median3", "fmedian3"])
@pytest.mark.parametrize("scalar", ["float", "half"])
def test_median_treats_nan_as_missing(scalar: str, name: str) -> None:
    columns = three_inputs(scalar)
    got = evaluate(scalar, 1, [call(name, 3)], columns)[0]
    rows = np.stack(columns, 1)
    missing = np.isnan(rows).sum(1)
    assert np.array_equal(got[missing == 0], np.median(rows[missing == 0], 1))
    assert np.array_equal(got[missing == 2], np.nanmax(rows[missing == 2], 1))
    assert (got[missing == 1, None] == rows[missing == 1]).any(1).all()
    all_missing = evaluate(scalar, 1, [call(name, 3)], (np.full(4, np.nan, rows.dtype),) * 3)
    assert np.isnan(all_missing).all()


def test_internal_names_take_a_mode() -> None:
    """Kernels that extend the library to bfloat call __metal_exp(x, mode) and its kind."""
    inputs = three_inputs("float")
    without_mode = {"fma"}
    calls = [
        text if function.name in without_mode else f"{text[:-1]}, __METAL_MAYBE_FAST_MATH__)"
        for function, text in zip(FUNCTIONS, CALLS, strict=True)
    ]
    got = evaluate("float", 1, [f"__metal_{text}" for text in calls], inputs)
    assert same(got, evaluate("float", 1, CALLS, inputs))


def test_a_kernel_may_add_overloads_on_bfloat() -> None:
    prelude = """
    namespace metal {
    METAL_FUNC bfloat exp(bfloat x) {
      return bfloat(__metal_exp(float(x), __METAL_MAYBE_FAST_MATH__));
    }
    METAL_FUNC bfloat abs(bfloat x) {
      return bfloat(__metal_fabs(float(x), __METAL_FAST_MATH__));
    }
    METAL_FUNC bfloat max(bfloat x, bfloat y) {
      return bfloat(__metal_fmax(float(x), float(y), __METAL_PRECISE_MATH__));
    }
    namespace precise { METAL_FUNC bfloat exp(bfloat x) { return metal::exp(x); } }
    }
    """
    calls = ["metal::exp(bfloat(1.0f))", "abs(bfloat(-2.5f))", "max(bfloat(1.0f), bfloat(3.0f))"]
    got = values_of("bfloat", [*calls, "precise::exp(bfloat(1.0f))"], prelude)
    assert got.tolist() == [2.71875, 2.5, 3.0, 2.71875]


RESOLVED = (
    ("bfloat becomes float", "float r = exp(bfloat(1.0f));"),
    ("bfloat beats integers", "float r = abs(bfloat(1.0f)) + max(bfloat(1.0f), bfloat(2.0f));"),
    ("int becomes float next to it", "float r = pow(2, out[0]) + pow(out[0], 3);"),
    ("precise takes float only", "float r = precise::sqrt(3) + precise::exp(half(1.0h));"),
    ("fast takes float only", "float r = fast::log(2u) + fast::max(1, 2.0f);"),
    ("scalar is widened", "float4 r = max(float4(out[0]), 0.0f);"),
    ("scalars are widened", "float4 r = clamp(float4(out[0]), 0.0f, 1.0f);"),
    ("scalar is widened on the left", "half2 r = min(1.0h, half2(out[0]));"),
    ("short stays short", "static_assert(sizeof(max(short(1), short(2))) == 2);"),
    ("a swizzle is a vector", "float4 v = out[0]; float2 r = sin(v.xy) + exp(v.wz);"),
    ("a packed vector becomes a vector", "packed_float3 p = float3(out[0]); float3 r = exp(p);"),
)
AMBIGUOUS = (
    ("int and float", "auto r = max(out[0], 0);"),
    ("half and float", "auto r = min(half(1), 1.0f);"),
    ("short and int", "auto r = max(short(1), 2);"),
    ("exp of int", "auto r = exp(2);"),
    ("isnan of int", "auto r = isnan(2);"),
)


@pytest.mark.parametrize("statements", [pytest.param(text, id=name) for name, text in RESOLVED])
def test_overload_is_found(statements: str) -> None:
    assert refusal(statements) is None


@pytest.mark.parametrize("statements", [pytest.param(text, id=name) for name, text in AMBIGUOUS])
def test_overload_is_ambiguous_as_in_metal(statements: str) -> None:
    message = refusal(statements)
    assert message is not None
    assert "ambiguous" in message


def test_a_template_of_the_author_does_not_disturb() -> None:
    prelude = "template <typename T> T exp(T x) { return x; }"
    got = values_of("float", ["metal::exp(0.0f)", "::exp(5.0f)", "max(1.0f, 2.0f)"], prelude)
    assert got.tolist() == [1, 5, 2]


def test_no_function_needs_a_library() -> None:
    """What LLVM does not know as an instruction would become a slow call, or none on a GPU."""
    lines = "\n".join(f"  out[{row}] = {text};" for row, text in enumerate(CALLS))
    for kind in ("float", "half", "float3", "half4"):
        text = f"""using namespace metal;
        extern "C" void all({kind}* out, {kind} x, {kind} y, {kind} z) {{\n{lines}\n}}"""
        for fast_math in (False, True):
            result = clang.compile_to_ir(text, HOST, dialect=Dialect(fast_math))
            assert result.ok, result.messages
            declared = re.findall(r"^declare .*@([\w.]+)\(", result.output, re.MULTILINE)
            assert declared
            assert not [name for name in declared if not name.startswith("llvm.")]
