"""The fixed point over a kernel: what stays uniform, what becomes a pattern, what varies."""

from __future__ import annotations

import pytest
from small_kernels import BUFFERS, COMPLETE, INDEX, LANE, TWO_WAYS, VARYING, kernel_of

from anymetal.passes.simdgroup.analysis import Analysis, private_arrays
from anymetal.passes.simdgroup.facts import LANE_NUMBERS
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.rules import GroupShape


def analysed(body: str, shape: GroupShape = COMPLETE) -> Analysis:
    return Analysis(kernel_of(body), shape)


def test_machine_parts() -> None:
    analysis = analysed(
        LANE
        + INDEX
        + """
  %x.place = getelementptr i8, ptr %self, i64 8
  %x = load i32, ptr %x.place, align 4
  %y.place = getelementptr i8, ptr %self, i64 12
  %y = load i32, ptr %y.place, align 4
  ret void"""
    )
    assert analysis.facts["%lane"].values == LANE_NUMBERS
    assert analysis.facts["%index"].offsets == LANE_NUMBERS
    assert analysis.facts["%index"].base is None
    assert analysis.facts["%i"].sure, "an index of a threadgroup does not wrap around"
    assert analysis.facts["%x"].offsets == LANE_NUMBERS
    assert analysis.facts["%y"].is_uniform


def test_rows_of_eight() -> None:
    body = """
  %place = getelementptr i8, ptr %self, i64 8
  %x = load i32, ptr %place, align 4
  %further = getelementptr i8, ptr %self, i64 12
  %y = load i32, ptr %further, align 4
  ret void"""
    analysis = analysed(body, GroupShape(8, complete=True))
    assert analysis.facts["%x"].values == tuple(lane % 8 for lane in range(32))
    assert analysis.facts["%y"].offsets == tuple(lane // 8 for lane in range(32))
    assert analysed(body, GroupShape(0)).facts["%x"].is_varying


def test_a_thread_reads_its_description_by_words() -> None:
    with pytest.raises(NotVectorisable, match="a read of <2 x i32> from a thread's description"):
        analysed("""
  %place = getelementptr i8, ptr %self, i64 8
  %both = load <2 x i32>, ptr %place, align 4
  ret void""")


LOOP = """
  br label %head
head:
  %k = phi i32 [ 0, %entry ], [ %k.next, %head ]
  %total = phi i32 [ {start}, %entry ], [ %total.next, %head ]
  %k.next = add i32 %k, 1
  %total.next = add i32 %total, %k
  %more = icmp ult i32 %k.next, {end}
  br i1 %more, label %head, label %after
after:
  %last = phi i32 [ %k, %head ]
  %result = phi i32 [ %total.next, %head ]
  ret void"""


def test_a_uniform_loop_keeps_its_counter_scalar_and_patterns_patterns() -> None:
    analysis = analysed(INDEX + LOOP.format(start="%index", end="9"))
    assert analysis.facts["%k"].is_uniform
    assert analysis.facts["%total"].offsets == LANE_NUMBERS
    assert analysis.facts["%total"].limit is None, "it grows with every round"
    assert analysis.facts["%last"].is_uniform
    assert analysis.divergent == set()


def test_what_leaves_a_loop_at_different_times_varies() -> None:
    analysis = analysed(INDEX + LOOP.format(start="0", end="%index"))
    assert analysis.divergent == {"head"}
    assert analysis.facts["%k"].is_uniform, "for the lanes that are still in the loop"
    assert analysis.facts["%last"].is_varying
    assert analysis.facts["%result"].is_varying


def test_phis_behind_a_divergent_branch_mix_lanes() -> None:
    analysis = analysed(
        VARYING
        + TWO_WAYS
        + """
  %mixed = phi i32 [ 1, %yes ], [ 2, %no ]
  %same = phi i32 [ 7, %yes ], [ 7, %no ]
  ret void"""
    )
    assert analysis.facts["%mixed"].is_varying
    assert analysis.facts["%same"].values == (7,) * 32


def test_uniform_loads_are_uniform_and_gathers_vary() -> None:
    analysis = analysed(
        VARYING
        + """
  %first = load float, ptr %in, align 4
  %far.i = sext i32 %x to i64
  %far.place = getelementptr float, ptr %in, i64 %far.i
  %far = load float, ptr %far.place, align 4
  %sum = fadd float %first, 1.000000e+00
  %product = fmul float %sum, %far
  ret void"""
    )
    assert analysis.facts["%first"].is_uniform
    assert analysis.facts["%sum"].is_uniform
    assert analysis.facts["%far"].is_varying
    assert analysis.facts["%product"].is_varying


def test_results_of_atomics_and_calls_vary() -> None:
    analysis = analysed(
        BUFFERS
        + """
  %old = atomicrmw add ptr %in, i32 1 monotonic, align 4
  %called = call i32 @elsewhere(i32 1)
  ret void"""
    )
    assert analysis.facts["%old"].is_varying
    assert analysis.facts["%called"].is_varying


@pytest.mark.parametrize(
    ("uses", "piece"),
    [
        ("store float 1.000000e+00, ptr %p, align 4", 4),
        ("store half 0xH3C00, ptr %p, align 2", 2),
        ("%r = load <2 x float>, ptr %p, align 4", 0),
        ("store float 1.000000e+00, ptr %p, align 4\n  %r = load i8, ptr %p, align 1", 0),
        ("call void @elsewhere(ptr %p)", 0),
        ("store ptr %p, ptr %in, align 8", 0),
        ("%r = atomicrmw add ptr %p, i32 1 monotonic, align 4", 0),
        ("%q = getelementptr i8, ptr %p, i64 2\n  store float 1.000000e+00, ptr %q, align 2", 0),
        ("%q = getelementptr i8, ptr %p, i64 8\n  store float 1.000000e+00, ptr %q, align 4", 4),
    ],
)
def test_arrays_of_a_thread_are_interleaved_where_all_uses_allow_it(uses: str, piece: int) -> None:
    body = f"""{BUFFERS}{INDEX}
  %array = alloca [8 x float], align 16
  %p = getelementptr [8 x float], ptr %array, i64 0, i64 %i
  {uses}
  ret void"""
    assert private_arrays(kernel_of(body)) == {"%array": piece}
