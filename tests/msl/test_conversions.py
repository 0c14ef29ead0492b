"""Conversions between scalar types, alone and in vectors: rounding, truncation, wrap-around."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from vector_model import (
    FLOATS,
    HEADER,
    INTEGERS,
    SCALARS,
    SIZES,
    Array,
    array,
    blank,
    refusal,
    rounded,
    same,
    samples,
    tensor,
    values_of,
)

import anymetal


def float_values(seed: int) -> Array:
    """Random bit patterns, and values around every boundary of half and bfloat."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 2**32, 6000, np.uint32).view(np.float32)
    halves = np.arange(0, 2**16, 37, np.uint16).view(np.float16).astype(np.float32)
    bfloats = (np.arange(0, 2**16, 41, np.uint32) << 16).view(np.float32)
    ties = np.concatenate([halves, bfloats]).view(np.uint32)
    steps = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0x0FFF, 0x1000, 0x1001], np.uint32)
    near = (ties[:, None] + steps).reshape(-1).view(np.float32)
    edges = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, 1e-8], np.float32
    )
    return np.concatenate([patterns, near, edges])


@pytest.mark.parametrize("target", ["half", "bfloat"])
def test_float_to_16_bits_rounds_to_nearest_even_as_torch_does(target: str) -> None:
    """By assignment, by cast, and as vectors of two and four."""
    source = f"""{HEADER}
kernel void convert(device const float* in, device {target}* a, device {target}* b,
                    device {target}4* c, device {target}2* d, uint i [[thread_position_in_grid]]) {{
  a[i] = {target}(in[i]);
  b[i] = static_cast<{target}>(in[i]);
  if (i % 4 == 0) c[i / 4] = {target}4(*(device const float4*)(in + i));
  if (i % 2 == 0) d[i / 2] = {target}2(in[i], in[i + 1]);
}}
"""
    values = float_values(seed=7)
    values = values[: values.size // 4 * 4]
    outputs = [blank(target, values.size) for _ in range(4)]
    kernel = anymetal.compile_shader(source).convert
    kernel(torch.from_numpy(values), *outputs, threads=values.size)
    dtype = torch.float16 if target == "half" else torch.bfloat16
    expected = torch.from_numpy(values).to(dtype).float()
    for output in outputs:
        got = array(target, output).astype(np.float32)
        assert same(unflushed(got, expected.numpy(), target), expected.numpy())


def unflushed(got: Array, expected: Array, target: str) -> Array:
    """Metal lets bfloat numbers below 2^-126 become zero, and AVX-512 does that."""
    flushed = (target == "bfloat") & (got == 0) & (np.abs(expected) < 2.0**-126)  # type: ignore[arg-type]
    return np.where(flushed, expected, got)


def test_16_bits_to_float_keeps_every_value() -> None:
    source = f"""{HEADER}
kernel void widen(device const half* h, device const bfloat* b, device float* from_half,
                  device float* from_bfloat, uint i [[thread_position_in_grid]]) {{
  from_half[i] = h[i];
  from_bfloat[i] = float2(bfloat2(b[i])).y;
}}
"""
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    outputs = [blank("float", 2**16) for _ in range(2)]
    halves, bfloats = bits.view(torch.float16), bits.view(torch.bfloat16)
    anymetal.compile_shader(source).widen(halves, bfloats, *outputs, threads=2**16)
    assert same(outputs[0].view(torch.float32).numpy(), halves.float().numpy())
    assert same(outputs[1].view(torch.float32).numpy(), bfloats.float().numpy())


def test_half_and_bfloat_convert_to_each_other_in_every_form() -> None:
    """Three kinds of casts, vectors, and a type that a template leaves open."""
    source = f"""{HEADER}
template <typename To, typename From> To cast(From x) {{ return static_cast<To>(x); }}
template <typename To, typename From> To made(From x) {{ return To(x); }}
template <typename To, typename From> To old(From x) {{ return (To)x; }}
kernel void convert(device const half* h, device const bfloat* b, device bfloat* to_bfloat,
                    device half* to_half, uint i [[thread_position_in_grid]]) {{
  device bfloat* p = to_bfloat + i * 8;
  device half* q = to_half + i * 8;
  p[0] = bfloat(h[i]);
  p[1] = (bfloat)h[i];
  p[2] = static_cast<bfloat>(h[i]);
  p[3] = bfloat4(half4(h[i])).z;
  p[4] = cast<bfloat>(h[i]);
  p[5] = made<bfloat>(h[i]);
  p[6] = old<bfloat>(h[i]);
  p[7] = bfloat3(h[i]).y;
  q[0] = half(b[i]);
  q[1] = (half)b[i];
  q[2] = static_cast<half>(b[i]);
  q[3] = half4(bfloat4(b[i])).z;
  q[4] = cast<half>(b[i]);
  q[5] = made<half>(b[i]);
  q[6] = old<half>(b[i]);
  q[7] = half3(b[i]).y;
}}
"""
    bits = torch.arange(0, 2**16, 5, dtype=torch.int32).to(torch.int16)
    halves, bfloats = bits.view(torch.float16), bits.view(torch.bfloat16)
    count = bits.numel()
    outputs = blank("bfloat", count * 8), blank("half", count * 8)
    anymetal.compile_shader(source).convert(halves, bfloats, *outputs, threads=count)
    to_bfloat = halves.float().bfloat16().float().numpy()
    to_half = bfloats.float().half().numpy()
    to_bfloat = np.repeat(to_bfloat, 8)
    assert same(unflushed(array("bfloat", outputs[0]), to_bfloat, "bfloat"), to_bfloat)
    assert same(array("half", outputs[1]), np.repeat(to_half, 8))


# ---- Every pair of types -------------------------------------------------------------------------


def inputs_for(source: str, target: str) -> Array:
    """Values of one type that the other can take: converting others is undefined."""
    values = samples(source, (64,), seed=8)
    if source not in FLOATS or target not in INTEGERS:
        return values
    values = np.abs(values) if target.startswith("u") else values
    return rounded(source, values.astype(np.float32))


def converted(values: Array, target: str) -> Array:
    with np.errstate(all="ignore"):
        if target == "bfloat":
            return rounded("bfloat", values.astype(np.float32))
        if target == "half" and not np.issubdtype(values.dtype, np.floating):
            return values.astype(np.float32).astype(np.float16)
        return values.astype(SCALARS[target])


@pytest.mark.parametrize("target", SCALARS)
def test_every_type_converts_to_every_other_alone_and_in_vectors(target: str) -> None:
    """Integers wrap, floats lose their fraction, bools are 0 and 1, anything but 0 is true."""
    parameters, statements, tensors, expected = [], [], [], []
    for number, source in enumerate(SCALARS):
        parameters.append(f"device const {source}* in{number}")
        values = inputs_for(source, target)
        tensors.append(tensor(source, values))
        start = number * 64 * (1 + len(SIZES))
        statements.append(f"  out[{start} + i] = {target}(in{number}[i]);")
        expected.append(converted(values, target))
        for row, size in enumerate(SIZES, 1):
            cast = f"{target}{size}({source}{size}(in{number}[i]))[i % {size}]"
            statements.append(f"  out[{start + row * 64} + i] = {cast};")
            expected.append(converted(values, target))
    source = f"{HEADER}kernel void convert({', '.join(parameters)}, device {target}* out,\n"
    source += "uint i [[thread_position_in_grid]]) {\n" + "\n".join(statements) + "\n}\n"
    results = blank(target, 64 * len(expected))
    anymetal.compile_shader(source).convert(*tensors, results, threads=64)
    got = array(target, results).reshape(-1, 64)
    for row, values in enumerate(expected):
        source_name = list(SCALARS)[row // (1 + len(SIZES))]
        assert same(got[row], values), f"{source_name} to {target}, form {row % 4}"


def test_nan_becomes_zero_as_an_integer() -> None:
    """The specification says so; out-of-range values saturate, as on Apple's GPUs."""
    source = f"""{HEADER}
kernel void convert(device const float* in, device int* a, device uint* b, device int4* c,
                    uint i [[thread_position_in_grid]]) {{
  a[i] = int(in[i]);
  b[i] = uint(in[i]);
  c[i] = int4(float4(in[i]));
}}
"""
    values = torch.tensor([float("nan"), 1e20, -1e20, float("inf"), 3.9, -3.9])
    outputs = blank("int", 6), blank("uint", 6), blank("int", 24)
    anymetal.compile_shader(source).convert(values, *outputs, threads=6)
    top, low = 2**31 - 1, -(2**31)
    assert array("int", outputs[0]).tolist() == [0, top, low, top, 3, -3]
    assert array("uint", outputs[1]).tolist() == [0, 2**32 - 1, 0, 2**32 - 1, 3, 0]
    assert array("int", outputs[2])[::4].tolist() == [0, top, low, top, 3, -3]


def test_half_arithmetic_rounds_after_every_operation() -> None:
    """1 + 2^-11 is a tie in half: it falls back to 1 each time, where float would go on."""
    expressions = ["half(1) + half(0.00048828125h) + half(0.00048828125h)", "(half)0.1f * (half)3"]
    got = values_of("half", expressions)
    assert same(got, np.array([1, np.float16(0.1) * np.float16(3)], np.float16))
    bfloats = values_of("bfloat", ["bfloat(1) + bfloat(0.00390625f) + bfloat(0.00390625f)"])
    assert bfloats.tolist() == [1]


def test_implicit_conversions_of_vectors_are_refused_and_of_scalars_done() -> None:
    assert refusal("float4 f = int4(1);") is not None
    assert refusal("float4 f = 2; int4 k = 3.5f; half h = 1.5f; int i = h; out[0] = f.x;") is None
