"""metal_geometric against float64, on vectors of two to four floats and halves."""

from __future__ import annotations

import numpy as np
import pytest
from function_model import Doubles, evaluate, wide
from vector_model import Array, refusal, same

COUNT = 1200
KINDS = pytest.mark.parametrize("scalar", ["float", "half"])
VECTORS = pytest.mark.parametrize("size", [2, 3, 4])


def vectors(scalar: str, size: int, seed: int) -> Array:
    dtype = np.float32 if scalar == "float" else np.float16
    return np.random.default_rng(seed).uniform(-4, 4, COUNT * size).astype(dtype)


def spread(text: str, size: int) -> str:
    """A number in every component, because a kernel's results are all of one shape."""
    return text if size == 1 else f"decltype(x)({text})"


def rows(values: Array, size: int) -> Doubles:
    return wide(values).reshape(-1, size)


def unit(v: Doubles) -> Doubles:
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def units(scalar: str, size: int, seed: int) -> Array:
    values = vectors(scalar, size, seed)
    return unit(rows(values, size)).astype(values.dtype).reshape(-1)


def close(got: Array, exact: Doubles, scale: Doubles) -> bool:
    """Within four roundings of the numbers added up, not of a sum that may have cancelled."""
    epsilon = float(np.finfo(got.dtype).eps)
    return bool((np.abs(wide(got).reshape(exact.shape) - exact) <= 4 * epsilon * scale).all())


@VECTORS
@KINDS
def test_products_and_lengths(scalar: str, size: int) -> None:
    x, y = vectors(scalar, size, 1), vectors(scalar, size, 2)
    a, b = rows(x, size), rows(y, size)
    expected = {
        "dot(x, y)": ((a * b).sum(1), np.abs(a * b).sum(1)),
        "length(x)": (np.linalg.norm(a, axis=1),) * 2,
        "length_squared(x)": ((a * a).sum(1),) * 2,
        "distance(x, y)": (np.linalg.norm(a - b, axis=1), np.abs(a).sum(1) + np.abs(b).sum(1)),
        "distance_squared(x, y)": (((a - b) ** 2).sum(1), (np.abs(a) + np.abs(b)).sum(1) ** 2),
    }
    results = evaluate(scalar, size, [spread(text, size) for text in expected], (x, y))
    for (text, (exact, scale)), got in zip(expected.items(), results, strict=True):
        assert close(got.reshape(-1, size)[:, 0], exact, scale), text


@VECTORS
@KINDS
def test_directions(scalar: str, size: int) -> None:
    x, y, z = (vectors(scalar, size, seed) for seed in (3, 4, 5))
    a, b, c = rows(x, size), rows(y, size), rows(z, size)
    along = (unit(b) * a).sum(1, keepdims=True)
    behind = (c * b).sum(1, keepdims=True) < 0
    expected = {
        "normalize(x)": unit(a),
        "reflect(x, y)": a - 2 * along * unit(b),
        "faceforward(x, y, z)": np.where(behind, a, -a),
    }
    results = evaluate(scalar, size, list(expected), (x, y, z))
    for (text, exact), got in zip(expected.items(), results, strict=True):
        assert close(got, exact, np.full_like(exact, 8.0)), text
    lengths = np.linalg.norm(rows(results[0], size), axis=1)
    assert np.abs(lengths - 1).max() <= 2 * np.finfo(x.dtype).eps


@VECTORS
@KINDS
def test_refract_bends_or_reflects_all(scalar: str, size: int) -> None:
    x, y = (units(scalar, size, seed) for seed in (6, 7))
    i, n = rows(x, size), rows(y, size)
    for eta in (0.5, 1.0, 1.5):
        cosine = (n * i).sum(1, keepdims=True)
        k = 1 - eta * eta * (1 - cosine * cosine)
        bent = eta * i - (eta * cosine + np.sqrt(np.abs(k))) * n
        clear = np.abs(k[:, 0]) > 0.05  # next to zero the root of k magnifies every rounding
        got = rows(evaluate(scalar, size, [f"refract(x, y, {scalar}({eta}))"], (x, y))[0], size)
        exact = np.where(k < 0, 0, bent)[clear]
        assert close(got[clear].astype(x.dtype), exact, np.full(1, 8.0))


@KINDS
def test_cross_is_the_perpendicular(scalar: str) -> None:
    x, y = vectors(scalar, 3, 8), vectors(scalar, 3, 9)
    got = evaluate(scalar, 3, ["cross(x, y)"], (x, y))[0]
    assert close(got, np.cross(rows(x, 3), rows(y, 3)), np.full(1, 32.0))


@VECTORS
def test_half_lengths_do_not_overflow_inside(size: int) -> None:
    x = np.full(size, 20000, np.float16)
    got = evaluate("half", size, [spread("length(x)", size)], (x,))[0]
    assert got[0] == np.float16(20000 * np.sqrt(size))


@pytest.mark.parametrize("space", ["fast", "precise"])
def test_fast_and_precise_hold_the_measures(space: str) -> None:
    x, y = vectors("float", 3, 10), vectors("float", 3, 11)
    calls = ["float3({}distance(x, y))", "float3({}length(x))", "{}normalize(x)"]
    plain = evaluate("float", 3, [text.format("") for text in calls], (x, y))
    assert same(plain, evaluate("float", 3, [text.format(f"{space}::") for text in calls], (x, y)))


def test_cross_takes_three_components_only() -> None:
    assert refusal("auto r = cross(float2(1.0f), float2(2.0f));") is not None
    assert refusal("auto r = cross(float3(1.0f), float3(2.0f));") is None
