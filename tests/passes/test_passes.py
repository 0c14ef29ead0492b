"""Each pass on small IR, judged by running or reading what LLVM makes of the result."""

from __future__ import annotations

import ctypes
import math
import re

import llvmlite.binding as llvm
import pytest

from anymetal.engines.cpu.jit import LoadedCode, object_code
from anymetal.errors import EngineError
from anymetal.ir import Module, parse
from anymetal.passes.lower.alignment import clamp_alignment
from anymetal.passes.lower.arithmetic import define_integer_arithmetic
from anymetal.passes.lower.coroutine import has_suspends, make_coroutine
from anymetal.passes.lower.machine import (
    lay_out_threadgroup_memory,
    refuse_primitives_outside,
    replace_self,
)

GROUP_MAIN = "define void @am_group_main(ptr %buffers, ptr %group) {\nentry:\n  ret void\n}\n"


def kernel_module(body: str) -> Module:
    text = (
        "declare ptr @am_self()\ndeclare i8 @am_suspend(i32)\ndeclare void @am_leave()\n"
        "declare ptr @am_threadgroup_storage(i32, i64, i64)\n"
        "define void @am_thread_main(ptr noundef captures(none) %buffers, ptr %self) {\n"
        f"{body}\n}}\n{GROUP_MAIN}"
    )
    return parse(str(llvm.parse_assembly(text)))


@pytest.mark.parametrize(
    ("opcode", "left", "right", "expected"),
    [
        ("sdiv", 7, 0, 0),
        ("sdiv", -(2**31), -1, -(2**31)),
        ("sdiv", 7, -1, -7),
        ("sdiv", -7, 2, -3),
        ("srem", 7, 0, 0),
        ("srem", -(2**31), -1, 0),
        ("srem", -7, 2, -1),
        ("udiv", 7, 0, 0),
        ("udiv", -1, 2, 2**31 - 1),
        ("urem", 7, 0, 0),
        ("urem", 7, 4, 3),
        ("shl", 1, 33, 2),
        ("shl", 1, 31, -(2**31)),
        ("lshr", -1, 32, -1),
        ("lshr", -1, 31, 1),
        ("ashr", -8, 34, -2),
    ],
)
def test_integer_arithmetic_is_defined_for_every_operand(
    opcode: str, left: int, right: int, expected: int
) -> None:
    module = parse(
        f"define i32 @f(i32 %a, i32 %b) {{\nentry:\n  %r = {opcode} i32 %a, %b\n  ret i32 %r\n}}\n"
    )
    define_integer_arithmetic(module)
    code = LoadedCode(object_code(str(module), 2))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(code.address("f"))
    assert function(left, right) == expected


@pytest.mark.parametrize(("left", "right"), [(7, 0), (-7, 0), (-7, 2), (-(2**31), -1), (9, 9)])
@pytest.mark.parametrize("product", ["%q, %b", "%b, %q"])
def test_remainders_that_were_made_of_divisions_are_defined(
    left: int, right: int, product: str
) -> None:
    module = parse(
        "define i32 @f(i32 %a, i32 %b) {\nentry:\n  %q = sdiv i32 %a, %b\n"
        f"  %p = mul i32 {product}\n  %r = sub i32 %a, %p\n  ret i32 %r\n}}\n"
    )
    define_integer_arithmetic(module)
    code = LoadedCode(object_code(str(module), 2))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(code.address("f"))
    assert function(left, right) == (int(math.fmod(left, right)) if right else 0)


def test_integer_arithmetic_on_vectors_is_valid_ir() -> None:
    module = parse(
        "define <4 x i16> @f(<4 x i16> %a, <4 x i16> %b) {\nentry:\n"
        "  %q = sdiv <4 x i16> %a, %b\n  %r = shl <4 x i16> %q, %b\n  ret <4 x i16> %r\n}\n"
    )
    define_integer_arithmetic(module)
    llvm.parse_assembly(str(module)).verify()


def test_integer_arithmetic_leaves_constants_alone() -> None:
    text = "define i32 @f(i32 %a) {\nentry:\n  %r = sdiv i32 %a, 3\n  ret i32 %r\n}\n"
    module = parse(text)
    define_integer_arithmetic(module)
    assert "select" not in str(module)


def test_alignment_is_clamped_on_plain_accesses_only() -> None:
    module = parse(
        "define void @f(ptr %p) {\nentry:\n  %v = load <4 x float>, ptr %p, align 16\n"
        "  store <4 x float> %v, ptr %p, align 16\n"
        "  %a = load atomic i64, ptr %p monotonic, align 8\n  ret void\n}\n"
    )
    clamp_alignment(module)
    text = str(module)
    assert text.count("align 4") == 2
    assert "monotonic, align 8" in text


def test_replace_self_uses_the_second_parameter() -> None:
    module = kernel_module("entry:\n  %s = call ptr @am_self()\n  store i32 1, ptr %s\n  ret void")
    function = module.function("am_thread_main")
    replace_self(module)
    assert "getelementptr i8, ptr %self, i64 0" in str(function)


def test_threadgroup_memory_is_laid_out_by_slot_and_alignment() -> None:
    module = kernel_module(
        "entry:\n  %b = call ptr @am_threadgroup_storage(i32 2, i64 64, i64 16)\n"
        "  %a = call ptr @am_threadgroup_storage(i32 1, i64 6, i64 2)\n"
        "  store i8 0, ptr %a\n  store i8 0, ptr %b\n  ret void"
    )
    function = module.function("am_thread_main")
    assert lay_out_threadgroup_memory(function) == {1: (0, 6), 2: (16, 64)}
    llvm.parse_assembly(str(module)).verify()


def test_primitives_in_a_function_that_is_not_inlined_are_refused() -> None:
    module = kernel_module("entry:\n  ret void")
    helper = "define void @helper() {\nentry:\n  %r = call i8 @am_suspend(i32 1)\n  ret void\n}\n"
    module.parts.extend(parse(helper).parts)
    with pytest.raises(EngineError, match=r"kernel 'k': the function 'helper' uses barriers"):
        refuse_primitives_outside(module, "k")


BARRIER = """
  %{0} = call i8 @am_suspend(i32 {1})
  %{0}.c = icmp eq i8 %{0}, 0
  br i1 %{0}.c, label %{2}, label %leave
"""


def coroutine_text(body: str) -> tuple[list[int], str]:
    module = kernel_module(body + "\nleave:\n  call void @am_leave()\n  unreachable")
    replace_self(module)
    assert has_suspends(module)
    sites = make_coroutine(module)
    llvm.parse_assembly(str(module)).verify()
    return [site.what for site in sites], str(module)


def test_coroutine_numbers_sites_in_order_and_drops_the_loop() -> None:
    kinds, text = coroutine_text(
        "entry:"
        + BARRIER.format("a", 1, "next")
        + "next:"
        + BARRIER.format("b", 3, "end")
        + "end:\n  ret void"
    )
    assert kinds == [1, 3]
    assert "store i32 17, ptr %self" in text
    assert "store i32 35, ptr %self" in text
    assert "am_group_main" not in text


CONDITIONAL_IN_LOOP = (
    "entry:\n  br label %head\nhead:\n  %i = phi i32 [ 0, %entry ], [ %n, %latch ]\n"
    "  %odd = trunc i32 %i to i1\n  br i1 %odd, label %meet, label %latch\nmeet:"
    + BARRIER.format("a", 3, "latch")
    + "latch:\n  %n = add i32 %i, 1\n  %d = icmp eq i32 %n, 8\n"
    "  br i1 %d, label %end, label %head\nend:\n  ret void"
)


def test_coroutine_lanes_meet_at_the_end_of_a_loop_with_a_conditional_collective() -> None:
    kinds, text = coroutine_text(CONDITIONAL_IN_LOOP)
    assert kinds == [3, 4]
    assert "[ %n, %am.meet0" in text


def test_coroutine_ways_back_to_the_next_round_meet_at_one_place() -> None:
    kinds, text = coroutine_text(
        "entry:\n  br label %head\nhead:\n"
        "  %i = phi i32 [ 0, %entry ], [ %n, %latch ], [ %i, %meet.done ]\n"
        "  %odd = trunc i32 %i to i1\n  br i1 %odd, label %meet, label %latch\nmeet:"
        + BARRIER.format("a", 3, "meet.done")
        + "meet.done:\n  %c = icmp eq i32 %i, 5\n  br i1 %c, label %head, label %latch\n"
        "latch:\n  %n = add i32 %i, 1\n  %d = icmp eq i32 %n, 8\n"
        "  br i1 %d, label %end, label %head\nend:\n  ret void"
    )
    assert kinds == [3, 4]
    (joined,) = re.findall(r"(%am\.round\.\d+\.0) = phi i32 (.*)", text)
    assert "[ %n, %latch ]" in joined[1] and "[ %i, %meet.done ]" in joined[1]
    assert re.search(rf"%i = phi i32 \[ {joined[0]}, %am\.meet0\S* \], \[ 0, %\S+ \]", text)


def test_coroutine_adds_nothing_to_a_loop_that_always_meets() -> None:
    kinds, _ = coroutine_text(
        "entry:\n  br label %head\nhead:\n  %i = phi i32 [ 0, %entry ], [ %n, %latch ]"
        + BARRIER.format("a", 3, "latch")
        + "latch:\n  %n = add i32 %i, 1\n  %d = icmp eq i32 %n, 8\n"
        "  br i1 %d, label %end, label %head\nend:\n  ret void"
    )
    assert kinds == [3]


def test_coroutine_adds_nothing_for_threadgroup_barriers() -> None:
    kinds, _ = coroutine_text(CONDITIONAL_IN_LOOP.replace("am_suspend(i32 3)", "am_suspend(i32 1)"))
    assert kinds == [1]
