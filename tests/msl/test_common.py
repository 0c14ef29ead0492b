"""metal_common against float64: clamp, mix, saturate, sign, smoothstep, step."""

from __future__ import annotations

import numpy as np
import pytest
from function_model import SIZES, evaluate, samples, ulps, unit_in_last_place, wide
from vector_model import same

COUNT = 4000
KINDS = pytest.mark.parametrize("scalar", ["float", "half"])
EVERY_SIZE = pytest.mark.parametrize("size", SIZES)


@EVERY_SIZE
@KINDS
def test_clamp_saturate_sign_and_step(scalar: str, size: int) -> None:
    rng = np.random.default_rng(0)
    x, y, z = (rng.permutation(samples(scalar, COUNT, seed)) for seed in (1, 2, 3))
    a, b, c = wide(x), wide(y), wide(z)
    low, high = np.fmin(b, c), np.fmax(b, c)
    raised = np.where((a < low) | np.isnan(a), low, a)
    clamped = np.where((high < raised) | np.isnan(raised), high, raised)
    expected = {
        "clamp(x, fmin(y, z), fmax(y, z))": clamped,
        "saturate(x)": np.where(np.isnan(a), 0, np.clip(a, 0, 1)),
        "sign(x)": np.where(np.isnan(a), 0, np.where(a == 0, a, np.sign(a))),
        "step(x, y)": np.where(b < a, 0.0, 1.0),
    }
    results = evaluate(scalar, size, list(expected), (x, y, z))
    for text, got in zip(expected, results, strict=True):
        errors = ulps(scalar, got, expected[text])
        if text.startswith(("clamp", "saturate")):  # either zero of two equal ones
            errors[(expected[text] == 0) & (got == 0)] = 0
        assert errors.max() == 0, text


@EVERY_SIZE
@KINDS
def test_mix_is_a_straight_line(scalar: str, size: int) -> None:
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(COUNT).astype(samples(scalar, 2, 0).dtype) for _ in range(2))
    amount = rng.uniform(0, 1, COUNT).astype(x.dtype)
    amount[:10], amount[10:20] = 0, 1
    got = evaluate(scalar, size, ["mix(x, y, z)"], (x, y, amount))[0]
    exact = wide(x) + (wide(y) - wide(x)) * wide(amount)
    scale = unit_in_last_place(scalar, np.maximum(np.abs(wide(x)), np.abs(wide(y))))
    assert (np.abs(wide(got) - exact) / scale).max() <= 2
    assert same(got[:10], x[:10])


@EVERY_SIZE
@KINDS
def test_smoothstep_rises_from_edge_to_edge(scalar: str, size: int) -> None:
    rng = np.random.default_rng(5)
    low = rng.uniform(-4, 4, COUNT).astype(samples(scalar, 2, 0).dtype)
    high = (low + rng.uniform(1, 3, COUNT).astype(low.dtype)).astype(low.dtype)
    x = rng.uniform(-8, 8, COUNT).astype(low.dtype)
    x[:10], x[10:20] = low[:10], high[10:20]
    got = evaluate(scalar, size, ["smoothstep(x, y, z)"], (low, high, x))[0]
    t = np.clip((wide(x) - wide(low)) / (wide(high) - wide(low)), 0, 1)
    assert np.abs(wide(got) - t * t * (3 - 2 * t)).max() <= 8 * np.finfo(low.dtype).eps
    assert (got[x <= low] == 0).all()
    assert (got[x >= high] == 1).all()


@pytest.mark.parametrize("space", ["fast", "precise"])
def test_fast_and_precise_hold_clamp_and_saturate(space: str) -> None:
    inputs = tuple(samples("float", COUNT, seed) for seed in (1, 2, 3))
    calls = ["clamp(x, y, z)", "saturate(x)"]
    for size in (1, 3):
        plain = evaluate("float", size, calls, inputs)
        assert same(plain, evaluate("float", size, [f"{space}::{text}" for text in calls], inputs))


def test_a_scalar_next_to_a_vector_is_widened() -> None:
    x = samples("float", COUNT, 6)
    calls = ["clamp(x, -1.0f, 1.0f)", "clamp(x, float4(-1.0f), float4(1.0f))"]
    calls += ["mix(x, 0.0f, 0.5f)", "mix(x, float4(0.0f), float4(0.5f))", "step(0.5f, x)"]
    calls += ["step(float4(0.5f), x)", "smoothstep(0.0f, 1.0f, x)"]
    calls += ["smoothstep(float4(0.0f), float4(1.0f), x)"]
    results = evaluate("float", 4, calls, (x,))
    for short, long in zip(results[::2], results[1::2], strict=True):
        assert same(short, long)
