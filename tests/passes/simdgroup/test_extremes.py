"""Maxima and minima in one instruction: the same bits as comparisons and a selection."""

from __future__ import annotations

import math
import struct

import pytest
from small_kernels import BUFFERS, INDEX, Simdgroup, vectorised, words

from anymetal.machine import processor

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-42, -1e-42, 3.5, -3.5, 2.0, -2.0]
NANS = [0x7FC00000, 0xFFC00000, 0x7FC01234, 0x7F800001]
pytestmark = pytest.mark.skipif(not processor.has("avx512f"), reason="an instruction of AVX-512")


def bits(value: float) -> int:
    (found,) = struct.unpack("<I", struct.pack("<f", value))
    return int(found)


def number(value: int) -> float:
    (found,) = struct.unpack("<f", struct.pack("<I", value))
    return float(found)


def kernel(order: str, nan: str, condition: str = "or i1 %less, %none") -> str:
    """Chooses between x, of the first buffer, and y, of the second; the result is the second's."""
    return f"""{BUFFERS}{INDEX}
  %x.place = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %x.place, align 4
  %y.place = getelementptr float, ptr %out, i64 %i
  %y = load float, ptr %y.place, align 4
  %less = fcmp {order}
  %none = fcmp {nan}
  %taken = {condition}
  %chosen = select i1 %taken, float %y, float %x
  store float %chosen, ptr %y.place, align 4
  ret void"""


PAIRS = [(x, y) for x in [*map(bits, SPECIAL), *NANS] for y in [*map(bits, SPECIAL), *NANS]]
ORDERS = {
    "olt float %x, %y": ("max", lambda x, y: x < y),
    "ogt float %y, %x": ("max", lambda x, y: x < y),
    "ogt float %x, %y": ("min", lambda x, y: x > y),
    "olt float %y, %x": ("min", lambda x, y: x > y),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("nan", ["uno float %x, 0.000000e+00", "uno float %x, %x"])
@pytest.mark.parametrize("condition", ["or i1 %less, %none", "or i1 %none, %less"])
def test_all_pairs_of_special_numbers(order: str, nan: str, condition: str) -> None:
    name, is_taken = ORDERS[order]
    text = vectorised(kernel(order, nan, condition))
    assert text.count(f"call <16 x float> @llvm.x86.avx512.{name}.ps.512") == 2
    run = Simdgroup().loaded(text)
    for start in range(0, len(PAIRS), 32):
        pairs = PAIRS[start : start + 32]
        left, right = (
            words(x - (x >> 31 << 32) for x in some) for some in zip(*pairs, strict=True)
        )
        run([left, right])
        expected = [
            y if is_taken(number(x), number(y)) or math.isnan(number(x)) else x for x, y in pairs
        ]
        assert [x & 0xFFFFFFFF for x in right][: len(pairs)] == expected


@pytest.mark.parametrize(
    ("order", "nan", "condition"),
    [
        ("olt float %x, %y", "uno float %y, 0.000000e+00", "or i1 %less, %none"),
        ("olt float %x, %y", "uno float %x, %y", "or i1 %less, %none"),
        ("ole float %x, %y", "uno float %x, 0.000000e+00", "or i1 %less, %none"),
        ("olt float %x, %y", "uno float %x, 0.000000e+00", "and i1 %less, %none"),
        ("olt float %x, 1.000000e+00", "uno float %x, 0.000000e+00", "or i1 %less, %none"),
    ],
)
def test_what_is_no_maximum_is_left_alone(order: str, nan: str, condition: str) -> None:
    assert "llvm.x86" not in vectorised(kernel(order, nan, condition))
