"""metal_relational against numpy: kinds of numbers, all, any, not, select, on all types, sizes."""

from __future__ import annotations

import numpy as np
import pytest
from function_model import SIZES, evaluate, samples, vector, wide
from vector_model import LETTERS, SCALARS, Array, same, values_of
from vector_model import samples as any_samples

COUNT = 600
SMALLEST_NORMAL = {"float": 2.0**-126, "half": 2.0**-14, "bfloat": 2.0**-126}


def floats(scalar: str, seed: int) -> Array:
    """Every kind of number; bfloat's are floats whose low bits are cleared."""
    if scalar != "bfloat":
        return samples(scalar, COUNT, seed)
    bits = samples("float", COUNT, seed).view(np.uint32)
    cleared = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(cleared), np.float32(np.nan), cleared)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", ["float", "half", "bfloat"])
def test_kinds_of_numbers(scalar: str, size: int) -> None:
    x, y = floats(scalar, 1), np.random.default_rng(2).permutation(floats(scalar, 3))
    y[::7] = np.nan
    a, b = wide(x), wide(y)
    expected = {
        "isfinite(x)": np.isfinite(a),
        "isinf(x)": np.isinf(a),
        "isnan(x)": np.isnan(a),
        "isnormal(x)": np.isfinite(a) & (np.abs(a) >= SMALLEST_NORMAL[scalar]),
        "isordered(x, y)": ~np.isnan(a) & ~np.isnan(b),
        "isunordered(x, y)": np.isnan(a) | np.isnan(b),
        "signbit(x)": np.signbit(x),
    }
    results = evaluate(scalar, size, list(expected), (x, y), "bool")
    for text, got in zip(expected, results, strict=True):
        # torch chooses the sign of a NaN on its way to bfloat.
        known = ~np.isnan(a) if scalar == "bfloat" and text == "signbit(x)" else slice(None)
        assert np.array_equal(got[known], expected[text][known]), text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scalar", SCALARS)
def test_select_takes_the_second_where_true(scalar: str, size: int) -> None:
    x, y = any_samples(scalar, (COUNT,), 1), any_samples(scalar, (COUNT,), 2)
    zero = f"{vector(scalar, size)}({scalar}(0))"
    calls = ["select(x, y, x < y)", "select(x, y, true)", f"select(x, y, x == {zero})"]
    less, always, zeros = evaluate(scalar, size, calls, (x, y))
    assert same(less, np.where(x < y, y, x))
    assert same(always, y)
    assert same(zeros, np.where(x == 0, y, x))


@pytest.mark.parametrize("size", SIZES)
def test_all_any_and_not(size: int) -> None:
    patterns = range(1 << size)
    bits = [[str(bool(pattern >> k & 1)).lower() for k in range(size)] for pattern in patterns]
    vectors = [f"{vector('bool', size)}({', '.join(components)})" for components in bits]
    everywhere = values_of("bool", [f"all({text})" for text in vectors])
    somewhere = values_of("bool", [f"any({text})" for text in vectors])
    assert everywhere.tolist() == [pattern == (1 << size) - 1 for pattern in patterns]
    assert somewhere.tolist() == [pattern > 0 for pattern in patterns]
    last = "" if size == 1 else f".{LETTERS[size - 1]}"
    inverted = values_of("bool", [f"(not({text})){last}" for text in vectors])
    assert inverted.tolist() == [not pattern >> (size - 1) & 1 for pattern in patterns]
