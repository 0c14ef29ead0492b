"""Absolute values and selects of bfloat: rewritten, equal in value, and no longer fatal to LLVM."""

from __future__ import annotations

import torch

import anymetal
from anymetal.engines.llvm import llvm
from anymetal.ir import parse
from anymetal.passes.lower import bfloat

SCALAR = "  %a = tail call nnan bfloat @llvm.fabs.bf16(bfloat %x) #1, !dbg !7"
SELECT = "  %b = select <4 x i1> %c, <4 x bfloat> %x, <4 x bfloat> %y"
VECTOR = "  %9 = call <4 x bfloat> @llvm.fabs.v4bf16(<4 x bfloat> %v)"


def masked(*lines: str) -> list[str]:
    """The instructions that stand in the place of these."""
    module = parse("\n".join(["define void @f() {", "entry:", *lines, "}"]))
    bfloat.do_on_bits(module)
    return [str(instruction) for instruction in module.function("f").instructions()]


def test_scalar_call_becomes_a_mask() -> None:
    wide, *_, bits, clear, back = masked(SCALAR)
    assert wide.endswith("= fpext bfloat %x to float, !dbg !7")
    assert f"= and i16 {bits.split()[0]}, 32767, !dbg !7" in clear
    assert back == f"%a = bitcast i16 {clear.split()[0]} to bfloat, !dbg !7"


def test_vector_call_becomes_a_mask() -> None:
    lines = masked(VECTOR, SCALAR)
    assert len(lines) == 9 and not any("llvm.fabs" in line for line in lines)
    assert lines[1].endswith(f"= and <4 x i16> {lines[0].split()[0]}, splat (i16 32767)")


def test_other_types_stay() -> None:
    text = "%a = call float @llvm.fabs.f32(float %x)"
    assert not bfloat.needs_bits(text)
    assert bfloat.needs_bits(VECTOR) and bfloat.needs_bits(SELECT)
    assert masked(text) == [text]


def test_select_is_one_of_bits() -> None:
    first, second, chosen, back = masked(SELECT)
    assert first.endswith("= bitcast <4 x bfloat> %x to <4 x i16>")
    assert second.endswith("= bitcast <4 x bfloat> %y to <4 x i16>")
    assert "= select <4 x i1> %c, <4 x i16> " in chosen
    assert back == f"%b = bitcast <4 x i16> {chosen.split()[0]} to <4 x bfloat>"


def test_what_is_moved_is_moved_as_integers() -> None:
    gather = (
        "%g = call <4 x bfloat> @llvm.masked.gather.v4bf16.v4p0(<4 x ptr> align 2 %p, <4 x i1> %c,"
        " <4 x bfloat> poison)"
    )
    load, element = (
        "%l = load bfloat, ptr %p, align 2",
        "%e = extractelement <4 x bfloat> %v, i32 1",
    )
    assert all(map(bfloat.needs_bits, (gather, element, f"{load}\n%c = fcmp olt bfloat %l, %x\n")))
    assert not bfloat.needs_bits(f"{load}\n%w = fpext bfloat %l to float\n")
    *_, call, back = masked(gather)
    assert "<4 x i16> @llvm.masked.gather.v4i16.v4p0(<4 x ptr> align 2 %p, <4 x i1> %c, " in call
    assert back == f"%g = bitcast <4 x i16> {call.split()[0]} to <4 x bfloat>"
    assert masked(load)[0].endswith("= load i16, ptr %p, align 2")
    assert "= extractelement <4 x i16> " in masked(element)[1]
    assert "store i16 " in masked("store bfloat %x, ptr %p, align 2")[-1]


def test_what_was_an_integer_is_compared_as_one() -> None:
    lines = masked(
        "%a = load bfloat, ptr %p, align 2",
        "%c = fcmp olt bfloat %a, %x",
        "%s = select i1 %c, bfloat %a, bfloat %a",
        "store bfloat %s, ptr %p, align 2",
    )
    loaded = lines[0].split()[0]
    assert f"= select i1 %c, i16 {loaded}, i16 {loaded}" in "\n".join(lines)
    assert any(line.startswith("%c = fcmp olt float ") for line in lines)


def test_bits_are_the_upper_half_of_a_float() -> None:
    text = "  %d = bitcast bfloat %x to i16"
    assert bfloat.needs_bits(text)
    wide, bits, upper, low, named = masked(text)
    assert wide.endswith("= fpext bfloat %x to float")
    assert bits.endswith(f"= bitcast float {wide.split()[0]} to i32")
    assert upper.endswith(f"= lshr i32 {bits.split()[0]}, 16")
    assert low.endswith(f"= trunc i32 {upper.split()[0]} to i16")
    assert named == f"%d = or i16 {low.split()[0]}, 0"


def test_sign_and_magnitude_of_one_bfloat_compile() -> None:
    source = """#include <metal_stdlib>
    using namespace metal;
    kernel void split(device const bfloat* x, device ushort* sign, device ushort* rest,
                      uint i [[thread_position_in_grid]]) {
      sign[i] = as_type<ushort>(x[i]) >> 15;
      rest[i] = (as_type<ushort>(x[i]) & 0x7fff) > 0x3f80;
    }"""
    x = torch.tensor([1.0, -2.0, 3.0, -0.5], dtype=torch.bfloat16)
    sign, rest = torch.zeros(4, dtype=torch.int16), torch.zeros(4, dtype=torch.int16)
    anymetal.compile_shader(source).split(x, sign, rest, threads=4)
    assert sign.tolist() == [0, 1, 0, 1]
    assert rest.tolist() == [0, 1, 1, 0]


VECTORS = """
define void @move(ptr %from, ptr %to, <4 x i1> %mask, i1 %again) {
start:
  %first = load <4 x bfloat>, ptr %from, align 8
  br label %loop
late:
  store <4 x bfloat> %turned, ptr %to, align 8
  ret void
loop:
  %now = phi <4 x bfloat> [ %first, %start ], [ %turned, %loop ]
  %turned = shufflevector <4 x bfloat> %now, <4 x bfloat> poison, ORDER
  %wide = fpext <4 x bfloat> %now to <4 x float>
  store <4 x float> %wide, ptr %to, align 8
  %less = fcmp olt <4 x bfloat> %now, %turned
  %either = select <4 x i1> %less, <4 x bfloat> %now, <4 x bfloat> %turned
  call void @llvm.masked.store.v4bf16.p0(<4 x bfloat> %either, ptr align 8 %from, <4 x i1> %mask)
  br i1 %again, label %loop, label %late
}
declare void @llvm.masked.store.v4bf16.p0(<4 x bfloat>, ptr, <4 x i1>)
"""


def test_vectors_are_integers_where_a_processor_has_none_of_bfloats() -> None:
    """What is left of them is only said: nothing uses it, wherever its block stands."""
    assert bfloat.needs_bits(VECTORS, has_vectors=False)
    module = parse(VECTORS.replace("ORDER", "<4 x i32> <i32 1, i32 2, i32 3, i32 0>"))
    bfloat.do_on_bits(module, has_vectors=False)
    (function,) = (one for one in module.functions if one.blocks)
    made = {i.result for i in function.instructions() if str(i.type).endswith("bfloat>")}
    for instruction in function.instructions():
        assert made.isdisjoint(instruction.names), instruction.text
        assert instruction.opcode == "bitcast" or instruction.result not in made
    llvm.parse_assembly(str(module)).verify()
