"""Arithmetic, conversions and choices: scalars where lanes agree, vectors where they do not."""

from __future__ import annotations

import re

import pytest
from small_kernels import (
    BUFFERS,
    INDEX,
    LANE,
    VARYING,
    Simdgroup,
    results,
    stored,
    vectorised,
    words,
)


def test_uniform_arithmetic_stays_scalar() -> None:
    body = f"""{BUFFERS}{INDEX}
  %x = load i32, ptr %in, align 4
  %y = mul nsw i32 %x, 3
  %z = sdiv i32 %y, 2{stored("i32", "%z")}"""
    text = vectorised(body)
    assert re.search(r"= mul nsw i32 %v\.\d+, 3", text)
    assert not re.search(r"= (mul|sdiv) .*<32 x i32>", text)


def test_varying_arithmetic_is_a_vector_and_keeps_its_flags() -> None:
    body = f"""{VARYING}
  %y = mul nsw i32 %x, 3{stored("i32", "%y")}"""
    assert re.search(r"= mul nsw <32 x i32> %v\.\d+, splat \(i32 3\)", vectorised(body))


def test_what_is_known_of_every_lane_costs_nothing() -> None:
    body = f"""{LANE}{BUFFERS}{INDEX}
  %low = icmp ult i32 %lane, 13
  %s = sext i1 %low to i32
  %t = mul i32 %s, 5
  %u = select i1 %low, i32 %t, i32 %lane{stored("i32", "%u")}"""
    text = vectorised(body)
    assert not re.search(r"= (mul|sext|select|icmp) .*i32", text)
    assert results(body)[:32] == [-5 if lane < 13 else lane for lane in range(32)]


def test_bits_put_together_from_a_pattern_and_known_lanes() -> None:
    """The known lanes' first value is part of the sum, too."""
    body = f"""{LANE}{BUFFERS}{INDEX}
  %twice = shl i32 %index, 1
  %odd = and i32 %lane, 1
  %even = xor i32 %odd, 1
  %j = or disjoint i32 %twice, %even
  %k = zext i32 %j to i64
  %p = getelementptr i32, ptr %out, i64 %k
  store i32 %index, ptr %p, align 4
  ret void"""
    expected = [0] * 64
    for lane in range(32):
        expected[2 * lane + (lane & 1 ^ 1)] = lane
    assert results(body) == expected


@pytest.mark.parametrize("opcode", ["and", "or", "xor"])
@pytest.mark.parametrize("number", [5, 24, 96, -32, -8])
def test_bits_of_an_index_and_a_number(opcode: str, number: int) -> None:
    body = f"""{BUFFERS}{INDEX}
  %y = {opcode} i32 %index, {number}{stored("i32", "%y")}"""
    function = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[opcode]
    assert results(body)[:32] == [function(lane, number) for lane in range(32)]


DIVISION = f"""{VARYING}
  %zero = icmp eq i32 %x, 0
  br i1 %zero, label %after, label %divide
divide:
  %q = OPCODE i32 100, %x
  %out.lane = getelementptr i32, ptr %out, i64 %i
  store i32 %q, ptr %out.lane, align 4
  br label %after
after:
  ret void"""


@pytest.mark.parametrize("opcode", ["udiv", "sdiv", "urem", "srem"])
def test_lanes_that_do_not_divide_cannot_trap(opcode: str) -> None:
    """LLVM drops a test for zero that a branch has made already."""
    body = DIVISION.replace("OPCODE", opcode)
    values = [lane % 4 for lane in range(32)]
    function = int.__floordiv__ if "div" in opcode else int.__mod__
    expected = [function(100, value) if value else 0 for value in values]
    assert results(body, values)[:32] == expected


def test_a_quotient_too_large_in_lanes_that_do_not_divide_cannot_trap() -> None:
    body = f"""{VARYING}
  %minus = load i32, ptr %in, align 4
  %least = icmp eq i32 %x, -2147483648
  br i1 %least, label %after, label %divide
divide:
  %q = sdiv i32 %x, %minus
  %out.lane = getelementptr i32, ptr %out, i64 %i
  store i32 %q, ptr %out.lane, align 4
  br label %after
after:
  ret void"""
    values = [-1, *(-(1 << 31) if lane % 2 else lane for lane in range(1, 32))]
    assert results(body, values)[:4] == [1, 0, -2, 0]


# Numbers where rounding could go wrong; as signed ones, half of them are negative.
_SMALL = (1, 2, 3, 5, 7, 10, 64, 100, 127, 128, 129, 254, 255)
_LARGE = (256, 1000, 32767, 32769, 65535, 99991, 2**24 + 1, 3**20, 2**31 - 1, 2**31 + 1, 2**32 - 2)


def _as(sign: str, number: int, bits: int) -> int:
    rest = number % (1 << bits)
    return rest - (1 << bits) if sign == "s" and rest >> (bits - 1) else rest


def _divided(opcode: str, left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return quotient if opcode.endswith("div") else left - quotient * right


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("opcode", ["udiv", "sdiv", "urem", "srem"])
def test_vectors_are_divided_in_floating_point(opcode: str, bits: int) -> None:
    sign, words_behind = opcode[0], 4 * 32
    narrow = "add i32 {}, 0" if bits == 32 else f"trunc i32 {{}} to i{bits}"
    back = "add i32 %q, 0" if bits == 32 else f"{sign}ext i{bits} %q to i32".replace("uext", "zext")
    body = f"""{VARYING}
  %b.place = getelementptr i8, ptr %x.place, i64 {words_behind}
  %b = load i32, ptr %b.place, align 4
  %left = {narrow.format("%x")}
  %right = {narrow.format("%b")}
  %q = {opcode} i{bits} %left, %right
  %y = {back}{stored("i32", "%y")}"""
    text = vectorised(body)
    assert f"= {opcode} <32 x" not in text
    call = Simdgroup().loaded(text)
    numbers = [_as(sign, number, bits) for number in (*_SMALL, *_LARGE)]
    divisors = [number for number in numbers if number not in (0, -1)]
    pairs = [(left, right) for left in [0, *numbers] for right in divisors]
    for start in range(0, len(pairs), 32):
        some = pairs[start : start + 32]
        filled = [*some, *[(1, 1)] * (32 - len(some))]
        out = words([0] * 32)
        call([words([left for left, _ in filled] + [right for _, right in filled]), out])
        found = [_as(sign, number, 32) for number in out]
        assert found == [_divided(opcode, *pair) for pair in filled]


def test_division_by_a_number_needs_no_care() -> None:
    body = DIVISION.replace("OPCODE i32 100, %x", "udiv i32 %x, 7")
    divisions = re.findall(r"udiv <32 x i32> %v\.\d+, splat \(i32 7\)", vectorised(body))
    assert len(divisions) == 2, "in the full copy and the masked one"


def test_vectors_and_structures_are_taken_apart() -> None:
    body = f"""{VARYING}
  %a = insertelement <4 x i32> <i32 1, i32 2, i32 3, i32 4>, i32 %x, i64 1
  %b = shufflevector <4 x i32> %a, <4 x i32> poison, <2 x i32> <i32 1, i32 3>
  %c = mul <2 x i32> %b, <i32 10, i32 100>
  %d = extractelement <2 x i32> %c, i64 0
  %e = extractelement <2 x i32> %c, i64 1
  %s = insertvalue {{ i32, i32 }} poison, i32 %d, 0
  %t = insertvalue {{ i32, i32 }} %s, i32 %e, 1
  %f = extractvalue {{ i32, i32 }} %t, 0
  %g = extractvalue {{ i32, i32 }} %t, 1
  %h = add i32 %f, %g{stored("i32", "%h")}"""
    assert results(body, range(32))[:32] == [10 * lane + 400 for lane in range(32)]


def test_elements_with_varying_index() -> None:
    body = f"""{VARYING}
  %v = insertelement <4 x i32> <i32 7, i32 8, i32 9, i32 10>, i32 %index, i32 2
  %k = and i32 %x, 3
  %taken = extractelement <4 x i32> %v, i32 %k
  %w = insertelement <4 x i32> %v, i32 1000, i32 %k
  %first = extractelement <4 x i32> %w, i32 0
  %sum = add i32 %taken, %first{stored("i32", "%sum")}"""
    values = [5 * lane + 1 for lane in range(32)]

    def expected(lane: int) -> int:
        k = values[lane] % 4
        return [7, 8, lane, 10][k] + (1000 if k == 0 else 7)

    assert results(body, values)[:32] == [expected(lane) for lane in range(32)]


def test_bits_cut_into_other_pieces() -> None:
    body = f"""{VARYING}
  %halves = bitcast i32 %x to <2 x i16>
  %turned = shufflevector <2 x i16> %halves, <2 x i16> poison, <2 x i32> <i32 1, i32 0>
  %whole = bitcast <2 x i16> %turned to i32{stored("i32", "%whole")}"""
    values = [lane << 16 | (lane + 100) for lane in range(32)]
    assert results(body, values)[:32] == [(lane + 100) << 16 | lane for lane in range(32)]
