"""Calls: intrinsics on whole vectors, other functions lane by lane, barriers once a simdgroup."""

from __future__ import annotations

import math
import re
import struct

import pytest
from small_kernels import (
    BUFFERS,
    INDEX,
    LANE,
    PARTIAL,
    VARYING,
    Simdgroup,
    blocks_of,
    results,
    stored,
    vectorised,
    vectorised_with_note,
    words,
)

from anymetal.passes.simdgroup import scaling
from anymetal.passes.simdgroup.graph import NotVectorisable


def test_intrinsics_take_vectors() -> None:
    body = f"""{VARYING}
  %f = uitofp i32 %x to float
  %r = call fast float @llvm.fma.f32(float %f, float 2.000000e+00, float %f)
  %n = fptoui float %r to i32{stored("i32", "%n")}"""
    text = vectorised(body)
    assert "call fast <32 x float> @llvm.fma.v32f32(<32 x float>" in text
    assert results(body, range(32))[:32] == [3 * lane for lane in range(32)]


@pytest.mark.parametrize("in_one", [True, False])
def test_products_with_powers_of_two_are_rounded_once(
    in_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What exp makes of 2^n: largest numbers, infinity, denormals and 0."""
    if in_one and not scaling.has_instruction():
        pytest.skip("this processor has no instruction for it")
    monkeypatch.setattr(scaling, "has_instruction", lambda: in_one)
    body = f"""{VARYING}
  %f = bitcast i32 %x to float
  %m.place = getelementptr i8, ptr %x.place, i64 128
  %m = load i32, ptr %m.place, align 4
  %r = call float @llvm.ldexp.f32.i32(float %f, i32 %m)
  %b = bitcast float %r to i32{stored("i32", "%b")}"""
    text = vectorised(body)
    assert text.count("@llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v") == 2 * in_one
    factors = [0.5 + lane * 1.4999 / 31 for lane in range(32)]
    bits = [struct.unpack("i", struct.pack("f", factor))[0] for factor in factors]
    exact = [struct.unpack("f", struct.pack("f", factor))[0] for factor in factors]
    call = Simdgroup().loaded(text)
    for powers in (range(-160, -128), range(-140, -108), range(-16, 16), range(100, 132)):
        out = words([0] * 32)
        call([words([*bits, *powers]), out])
        found = struct.unpack("32f", bytes(out))
        expected = [_float(math.ldexp(x, n)) for x, n in zip(exact, powers, strict=True)]
        assert list(found) == expected


def _float(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.inf


def test_a_product_with_a_power_of_two_for_all_lanes_is_arithmetic() -> None:
    body = f"""{BUFFERS}{INDEX}
  %x = load i32, ptr %in, align 4
  %r = call float @llvm.ldexp.f32.i32(float 1.500000e+00, i32 %x)
  %b = bitcast float %r to i32{stored("i32", "%b")}"""
    assert "call float @llvm.ldexp" not in vectorised(body)
    bits = struct.unpack("i", struct.pack("f", 1.5 * 2.0**-130))[0]
    assert results(body, [-130])[:32] == [bits] * 32


def test_intrinsics_of_uniform_values_are_called_once() -> None:
    body = f"""{BUFFERS}{INDEX}
  %x = load float, ptr %in, align 4
  %r = call float @llvm.sqrt.f32(float %x){stored("float", "%r")}"""
    assert re.search(r"call float @llvm\.sqrt\.f32\(float %v\.\d+\)", vectorised(body))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("i32 @llvm.ctlz.i32(i32 %x, i1 false)", lambda n: 32 - n.bit_length()),
        ("i32 @llvm.abs.i32(i32 %y, i1 true)", lambda n: abs(n - 9)),
        ("i32 @llvm.smax.i32(i32 %y, i32 4)", lambda n: max(n - 9, 4)),
        ("i32 @llvm.fshl.i32(i32 %x, i32 %x, i32 8)", lambda n: n << 8),
        ("i32 @llvm.scmp.i32.i32(i32 %y, i32 4)", lambda n: (n > 13) - (n < 13)),
        ("i32 @llvm.ucmp.i32.i64(i64 %i, i64 4)", lambda n: (n > 4) - (n < 4)),
        ("i32 @llvm.usub.sat.i32(i32 %x, i32 20)", lambda n: max(n - 20, 0)),
    ],
)
def test_intrinsics_with_numbers_and_several_types(call: str, expected: object) -> None:
    body = f"""{VARYING}
  %y = sub i32 %x, 9
  %r = call {call}{stored("i32", "%r")}"""
    assert results(body, range(32))[:32] == [expected(lane) for lane in range(32)]


def test_unknown_intrinsics_are_refused_by_name() -> None:
    with pytest.raises(
        NotVectorisable, match=r"intrinsic llvm\.powi\.f32\.i32 on values that vary"
    ):
        vectorised(f"""{VARYING}
  %f = uitofp i32 %x to float
  %r = call float @llvm.powi.f32.i32(float %f, i32 %x)
  ret void""")


RECURSIVE = """
define internal fastcc i32 @hidden(i32 %n, i8 zeroext %small) {
entry:
  %done = icmp eq i32 %n, 0
  br i1 %done, label %yes, label %no
yes:
  %w = zext i8 %small to i32
  ret i32 %w
no:
  %m = sub i32 %n, 1
  %r = call fastcc i32 @hidden(i32 %m, i8 zeroext %small)
  %s = add i32 %r, %n
  ret i32 %s
}
"""
CALL = f"""{VARYING}
  %small = trunc i32 %x to i8
  %r = tail call fastcc i32 @hidden(i32 %index, i8 zeroext %small){stored("i32", "%r")}"""


def test_functions_are_called_for_each_active_lane_as_they_were() -> None:
    text = vectorised(CALL, before=RECURSIVE)
    assert re.search(r"call fastcc i32 @hidden\(i32 %v\.\d+, i8 zeroext %v\.\d+\)", text)
    assert "declare i32 @hidden" not in text
    values = [1000 + lane for lane in range(32)]
    expected = [lane * (lane + 1) // 2 + values[lane] % 256 for lane in range(32)]
    assert results(CALL, values, before=RECURSIVE)[:32] == expected
    assert results(CALL, values, threads=7, before=RECURSIVE)[:8] == [*expected[:7], 0]


def test_copies_of_structures_are_passed_as_copies() -> None:
    body = f"""{BUFFERS}
  %big = alloca %big, align 8
  %r = call i32 @taker(ptr noundef byval(%big) align 8 %big)
  ret void"""
    text = vectorised(body, before="%big = type { [9 x i32] }\ndeclare i32 @taker(ptr)")
    assert re.search(r"call i32 @taker\(ptr byval\(%big\) align 8 %v\.\d+\)", text)


def test_atomics_run_lane_by_lane_and_give_each_its_result() -> None:
    body = f"""{VARYING}
  %old = atomicrmw add ptr %in, i32 10 syncscope("a") monotonic, align 4{stored("i32", "%old")}"""
    text = vectorised(body)
    assert "atomicrmw add ptr %v." in text and 'syncscope("a") monotonic, align 4' in text
    assert results(body, [5] * 32)[:32] == [5 + 10 * lane for lane in range(32)]
    assert results(body, [5] * 32, threads=3)[:4] == [5, 15, 25, 0]


def test_exchanges_give_a_structure_to_each_lane() -> None:
    body = f"""{VARYING}
  %pair = cmpxchg ptr %in, i32 %x, i32 7 monotonic monotonic, align 4
  %old = extractvalue {{ i32, i1 }} %pair, 0
  %won = extractvalue {{ i32, i1 }} %pair, 1
  %won.w = zext i1 %won to i32
  %ten = mul i32 %old, 10
  %sum = add i32 %ten, %won.w{stored("i32", "%sum")}"""
    assert results(body, [3] * 32)[:32] == [31, *[70] * 31]


STOP = "declare void @am_stop(i32)"


def test_a_barrier_stops_the_simdgroup_once() -> None:
    text, note = vectorised_with_note(
        f"{BUFFERS}\n  call void @am_stop(i32 17)\n  ret void", before=STOP
    )
    assert note.frame_size > 0
    assert len(re.findall(r"store i32 17, ptr %self", text)) == 1


def test_a_collective_stops_nobody_and_names_the_lanes_that_are_there() -> None:
    body = f"{BUFFERS}\n  call void @am_stop(i32 3)\n  ret void"
    text, note = vectorised_with_note(body, before=STOP)
    assert note.frame_size == 0
    assert "ptr %self, align 4" not in text
    assert re.search(r"store i32 -1, ptr %am\.simd, align 4", text)
    partial = vectorised(body, PARTIAL, before=STOP)
    inside = [line for name, b in blocks_of(partial).items() if "body" in name for line in b]
    assert any("@llvm.cttz.i32" in line for line in inside), "the lowest lane leads"


def test_hints_to_the_optimiser_are_dropped() -> None:
    text = vectorised(
        f"""{LANE}
  call void @llvm.assume(i1 true)
  ret void""",
        before="declare void @llvm.assume(i1)",
    )
    assert "call void @llvm.assume" not in text
