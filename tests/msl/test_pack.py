"""pack_ and unpack_ against numpy: every format, rounding ties, limits and NaN."""

from __future__ import annotations

import numpy as np
import pytest
from vector_model import HEADER, Array, array, blank, tensor

import anymetal

# Bits of each component, the first in the lowest bits.
FORMATS = {
    "unorm4x8": (8, 8, 8, 8),
    "snorm4x8": (8, 8, 8, 8),
    "unorm2x16": (16, 16),
    "snorm2x16": (16, 16),
    "unorm10a2": (10, 10, 10, 2),
    "unorm565": (5, 6, 5),
}
COUNT = 4096


def largest(name: str, bits: int) -> int:
    return (1 << bits - 1) - 1 if name.startswith("snorm") else (1 << bits) - 1


def inputs(scalar: str, size: int) -> Array:
    """Values in and out of range, exact ties between two integers, infinities, NaN."""
    rng = np.random.default_rng(9)
    values = rng.uniform(-1.5, 1.5, (COUNT, size))
    for row, most in enumerate((255, 127, 65535, 32767, 1023, 63, 31, 3)):
        ties = (rng.integers(-most, most, (200, size)) + 0.5) / most
        values[row * 200 : row * 200 + 200] = ties
    values[-7:] = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])[:, None]
    return values.astype(np.float16 if scalar == "half" else np.float32)


def packed(name: str, values: Array) -> Array:
    """The specification's rule in exact arithmetic: float64 holds each product exactly."""
    words = np.zeros(len(values), np.int64)
    shift = 0
    for column, bits in enumerate(FORMATS[name]):
        most = largest(name, bits)
        scaled = np.nan_to_num(values[:, column].astype(np.float64) * most, nan=0, posinf=most)
        low = -most if name.startswith("snorm") else 0
        integers = np.rint(np.clip(scaled, low, most)).astype(np.int64)
        words |= (integers & ((1 << bits) - 1)) << shift
        shift += bits
    return words


def unpacked(name: str, words: Array) -> Array:
    """Correctly rounded quotients, in float64 before the rounding to float."""
    columns = []
    shift = 0
    for bits in FORMATS[name]:
        field = (words.astype(np.int64) >> shift) & ((1 << bits) - 1)
        if name.startswith("snorm"):
            field = np.where(field >= 1 << bits - 1, field - (1 << bits), field)
        columns.append(np.maximum(field / largest(name, bits), -1))
        shift += bits
    return np.stack(columns, 1)


def word_type(name: str) -> str:
    return "ushort" if name == "unorm565" else "uint"


@pytest.mark.parametrize("scalar", ["half", "float"])
def test_packing_rounds_to_nearest_even_and_clamps(scalar: str) -> None:
    parameters, body, arguments = [], [], []
    for name, bits in FORMATS.items():
        size = len(bits)
        parts = ", ".join(f"in_{name}[i * {size} + {k}]" for k in range(size))
        parameters += [f"device const {scalar}* in_{name}", f"device uint* {name}"]
        body.append(f"  {name}[i] = pack_{scalar}_to_{name}({scalar}{size}({parts}));")
        arguments += [tensor(scalar, inputs(scalar, size)), blank("uint", COUNT)]
    source = f"{HEADER}kernel void run({', '.join(parameters)}, uint i [[thread_position_in_grid]])"
    source += " {\n" + "\n".join(body) + "\n}\n"
    anymetal.compile_shader(source).run(*arguments, threads=COUNT)
    for position, (name, bits) in enumerate(FORMATS.items()):
        got = array("uint", arguments[position * 2 + 1]).astype(np.int64)
        assert np.array_equal(got, packed(name, inputs(scalar, len(bits)))), name


@pytest.mark.parametrize("scalar", ["half", "float"])
def test_unpacking_rounds_correctly(scalar: str) -> None:
    """Every 16-bit word in both halves, so that every value of every field occurs."""
    parameters = ", ".join(f"device {scalar}* {name}" for name in FORMATS)
    body = []
    for name, bits in FORMATS.items():
        size = len(bits)
        body.append(f"  {{ auto v = unpack_{name}_to_{scalar}({word_type(name)}(words[i]));")
        body += [f"    {name}[i * {size} + {k}] = v[{k}];" for k in range(size)]
        body.append("  }")
    source = f"{HEADER}kernel void run(device const uint* words, {parameters},\n"
    source += "uint i [[thread_position_in_grid]]) {\n" + "\n".join(body) + "\n}\n"
    low = np.arange(2**16, dtype=np.uint32)
    words = np.concatenate([low << 16 | (low * 40503 & 0xFFFF), low])
    outputs = {name: blank(scalar, words.size * len(bits)) for name, bits in FORMATS.items()}
    anymetal.compile_shader(source).run(
        tensor("uint", words), *outputs.values(), threads=words.size
    )
    for name in FORMATS:
        seen = words & 0xFFFF if name == "unorm565" else words
        # Through float: 16 bits do not fit a half, and the specification lets that lose precision.
        expected = unpacked(name, seen).astype(np.float32)
        got = array(scalar, outputs[name]).reshape(expected.shape)
        assert np.array_equal(got, expected.astype(got.dtype)), name


def srgb_to_linear(c: Array) -> Array:
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)  # type: ignore[operator]


def linear_to_srgb(c: Array) -> Array:
    c = np.clip(np.nan_to_num(c, nan=0), 0, 1)  # type: ignore[arg-type]
    return np.where(c < 0.0031308, 12.92 * c, 1.055 * c ** (1 / 2.4) - 0.055)  # type: ignore[operator]


@pytest.mark.parametrize("scalar", ["half", "float"])
def test_srgb_packs_within_one_and_returns_to_the_same_word(scalar: str) -> None:
    source = f"""{HEADER}
kernel void run(device const {scalar}4* in, device uint* words, device {scalar}4* all,
                device uint* back, uint i [[thread_position_in_grid]]) {{
  words[i] = pack_{scalar}_to_srgb_unorm4x8(in[i]);
  all[i] = unpack_unorm4x8_srgb_to_{scalar}(i % 256 * 0x01010101);
  back[i] = pack_{scalar}_to_srgb_unorm4x8(all[i]);
}}
"""
    values = inputs(scalar, 4)
    words, linear, back = blank("uint", COUNT), blank(scalar, COUNT * 4), blank("uint", COUNT)
    anymetal.compile_shader(source).run(tensor(scalar, values), words, linear, back, threads=COUNT)
    got = array("uint", words).view(np.uint8).reshape(COUNT, 4).astype(np.float64)
    exact = values.astype(np.float64)
    assert np.all(np.abs(got[:, :3] - linear_to_srgb(exact[:, :3]) * 255) < 1)
    assert np.array_equal(got[:, 3], packed("unorm4x8", values) >> 24)
    codes = np.arange(256) / 255
    colours = array(scalar, linear).reshape(COUNT, 4)[:256].astype(np.float64)
    tolerance = 2.0**-11 if scalar == "half" else 2.0**-21
    assert np.all(
        np.abs(colours[:, 0] - srgb_to_linear(codes)) <= tolerance * srgb_to_linear(codes)
    )
    assert np.all(np.abs(colours[:, 3] - codes) <= tolerance)
    same_words = np.arange(COUNT, dtype=np.uint32) % 256 * 0x01010101
    assert np.array_equal(array("uint", back), same_words)
