"""Collectives on an NVIDIA GPU: which of them name all lanes, and which ask who is there."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN, Sizes
from anymetal.engines.cuda import driver
from anymetal.engines.cuda.executable import CudaExecutable, Text
from anymetal.engines.cuda.masks import count_lanes
from anymetal.ir import parse
from anymetal.nouns import Source

SOURCE = """
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

kernel void lanes(device const uint* read [[buffer(0)]], device uint* written [[buffer(1)]],
                  constant uint& count [[buffer(2)]], uint i [[thread_position_in_grid]],
                  uint group [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]],
                  uint thread_index [[thread_index_in_threadgroup]],
                  uint simd [[simdgroup_index_in_threadgroup]]) {
  uint value = written[i];
  BODY
  written[i] = value;
}
"""
ALL = "-1"


def ptx_of(body: str) -> str:
    compiler = Compiler(Source(SOURCE.replace("BODY", body)))
    made = compiler.compile("lanes", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    return made.ptx


def named(body: str) -> set[str]:
    """The lanes that shuffles name: all of them, or what is in a register."""
    found = re.findall(r"shfl\.sync\.idx\.b32\s+[^;]*,\s*(\S+);", ptx_of(body))
    assert found
    return {lanes if lanes == ALL else "asked" for lanes in found}


@pytest.mark.parametrize(
    "body",
    [
        "value = simd_shuffle_xor(value, 1);",
        "for (uint j = 0; j < count; ++j) value += simd_shuffle(value, j);",
        "if (simd == 3 && group < count) value = simd_shuffle_xor(value, 1);",
        "if (read[count] == 7) value = simd_shuffle_xor(value, 1);",
        "if (lane > 7) value += read[i]; value = simd_shuffle_xor(value, 1);",
        "for (uint j = 0; j < lane; ++j) value += read[j]; value = simd_shuffle_xor(value, 1);",
        "if (value > count) return; value = simd_shuffle_xor(value, 1);",
        "if (simd_any(value > count)) value = simd_shuffle_xor(value, 1);",
        "while (simd_any(value > count)) value = simd_shuffle_xor(value, 1) / 2;",
    ],
)
def test_all_lanes_come_here_together(body: str) -> None:
    assert named(body) == {ALL}


# Products of halves number the lanes anew, and the simdgroup's number is still known.
def test_simdgroups_with_products_go_their_own_ways_together() -> None:
    product = (
        "simdgroup_half8x8 one = make_filled_simdgroup_matrix<half, 8, 8>(1.0h);"
        "simdgroup_float8x8 sums = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);"
        "simdgroup_multiply_accumulate(sums, one, one, sums);"
        "value += uint(sums.thread_elements()[0]);"
    )
    first = "const uint first = min(simd * count, 77u);"
    rest = "for (uint j = first; j < 77; ++j) value += simd_shuffle(value, j % 32);"
    assert named(first + product + rest) == {ALL}


@pytest.mark.parametrize(
    "body",
    [
        "if (lane > 7) value = simd_shuffle_xor(value, 1);",
        "if (value > count) value = simd_shuffle_xor(value, 1);",  # what others may have written
        "for (uint j = 0; j < lane; ++j) value += simd_shuffle(value, j);",
        "for (uint j = lane > 7 ? 0 : 3; j < count; ++j) value += simd_shuffle(value, j);",
        "uint j = 0; while (read[i + j]) ++j; if (j > 3) value = simd_shuffle_xor(value, 1);",
        "uint up = (thread_index & read[i]) >> 5; "
        "for (uint n = 0; n < up; ++n) value += simd_shuffle(value, n);",
        "if ((i & count) > 7) value = simd_shuffle_xor(value, 1);",
        "if (lane > 7 || simd_any(value > 3)) { value = simd_shuffle_xor(value, 1); }",
    ],
)
def test_some_lanes_may_be_elsewhere(body: str) -> None:
    assert "asked" in named(body)


def test_many_collectives_have_code_for_whole_simdgroups() -> None:
    several = " ".join(f"value += simd_shuffle(value, (j * {n}) % 32);" for n in range(3, 23))
    loop = "for (uint j = 0; j < count; ++j) {{ {} }}"
    one, many = (ptx_of(loop.format(body)) for body in ("value += simd_max(value);", several))
    assert one.count("redux.sync") == 1
    assert many.count("shfl.sync.idx") == 2 * 20
    assert many.count("activemask") == 1 + 20


def usual_text_of(body: str) -> str:
    made = Compiler(Source(SOURCE.replace("BODY", body))).compile("lanes", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    assert made.ptx == made.texts[0]
    return made.texts[-1]


def test_usual_launches_have_code_that_asks_for_no_lanes() -> None:
    body = "value += simd_sum(value); value += simd_prefix_inclusive_sum(value + count);"
    any_launch, usual = ptx_of(body), usual_text_of(body)
    assert "activemask" in any_launch
    assert "activemask" not in usual
    # Neither the sizes of the grid are looked at, nor whether a constant has an address.
    assert any_launch.count("ld.param") > usual.count("ld.param")


@pytest.mark.parametrize(
    ("scan", "shuffles"),
    [
        ("simd_prefix_inclusive_sum(value)", 5),
        ("simd_prefix_exclusive_product(value)", 6),
        ("quad_prefix_inclusive_sum(value)", 2),
        ("uint(simd_prefix_inclusive_sum(float(value)))", 32),  # in the order of the CPU engines
    ],
)
def test_scans_of_integers_double_their_reach(scan: str, shuffles: int) -> None:
    assert usual_text_of(f"value += {scan};").count("shfl.sync") == shuffles


@pytest.mark.parametrize(
    "body",
    [
        "if (lane > count) return; value += uint(simd_sum(float(value)));",
        "if (lane > count) value += simd_sum(value);",
        "for (uint j = 0; j < lane; ++j) value += simd_max(value);",
    ],
)
def test_usual_launches_ask_where_lanes_may_have_gone(body: str) -> None:
    assert "activemask" in usual_text_of(body)


def test_kernels_without_collectives_have_one_text() -> None:
    made = Compiler(Source(SOURCE.replace("BODY", ""))).compile("lanes", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    assert len(made.texts) == 1


@pytest.mark.parametrize(
    ("threads", "group_size", "by_value", "text"),
    [
        ((512, 4, 1), (64, 2, 1), True, 1),
        ((512, 4, 1), (64, 2, 1), False, 0),
        ((500, 4, 1), (64, 2, 1), True, 0),
        ((512, 4, 1), (8, 2, 1), True, 0),  # half a simdgroup
    ],
)
def test_launches_of_whole_threadgroups_have_the_code_for_them(
    threads: Sizes,
    group_size: Sizes,
    by_value: bool,
    text: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = []

    def load(ptx: str, name: str, device: int, *, threads: int) -> SimpleNamespace:
        loaded.append(ptx)
        return SimpleNamespace(
            registers=32, max_threads=1024, local_bytes=0, prepared=lambda *_: lambda: 0
        )

    body = SOURCE.replace("BODY", "value += simd_sum(value);")
    made = Compiler(Source(body)).compile("lanes", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    monkeypatch.setattr(driver, "load", load)
    made.prepared(threads, group_size, 0, 0, 0, {}, by_value=by_value)
    assert loaded == [made.texts[text]]


@pytest.mark.parametrize("width", [256, 512, 544, 768, 800, 1024])
def test_code_for_wide_threadgroups_has_registers_for_all(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A multiprocessor has four parts with 16384 registers; 17 simdgroups of 120 do not fit."""

    def load(ptx: str, name: str, device: int, *, threads: int) -> SimpleNamespace:
        registers = min(200, driver.REGISTERS // threads // 8 * 8) if threads else 200
        fitting = 4 * (driver.REGISTERS // 4 // (32 * registers)) * 32
        return SimpleNamespace(registers=registers, max_threads=fitting, local_bytes=0)

    made = Compiler(Source(SOURCE.replace("BODY", ""))).compile("lanes", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    monkeypatch.setattr(driver, "load", load)
    assert made._load(0, width, Text(False, ())).max_threads >= width


@pytest.mark.parametrize(
    ("registers", "width", "asked"),
    [(118, 256, 512), (144, 256, 512), (128, 256, 0), (80, 256, 0), (64, 512, 0), (118, 128, 0)],
)
def test_two_threadgroups_of_a_multiprocessor_have_all_its_registers(
    registers: int, width: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(ptx: str, name: str, device: int, *, threads: int) -> SimpleNamespace:
        return SimpleNamespace(
            registers=registers, max_threads=1024, local_bytes=0, threads=threads
        )

    made = Compiler(Source(SOURCE.replace("BODY", ""))).compile("lanes", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    monkeypatch.setattr(driver, "load", load)
    assert vars(made._load(0, width, Text(True, ())))["threads"] == asked


@pytest.mark.parametrize(("limit", "asked"), [(512, 512), (256, 0), (1024, 0)])
def test_limit_of_threads_decides_how_many_registers_there_are(
    limit: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has at most 255, so that a limit of 256 threads takes none away."""

    def load(ptx: str, name: str, device: int, *, threads: int) -> SimpleNamespace:
        return SimpleNamespace(registers=64, max_threads=1024, local_bytes=0, threads=threads)

    attribute = f"[[max_total_threads_per_threadgroup({limit})]] kernel void"
    source = SOURCE.replace("BODY", "").replace("kernel void", attribute)
    made = Compiler(Source(source)).compile("lanes", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    monkeypatch.setattr(driver, "load", load)
    assert vars(made._load(0, 128, Text(False, ())))["threads"] == asked


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        # One place to wait at where lanes with a 7 go on, and one where the others do.
        (
            "bool found = false; for (uint j = 0; j < count; ++j) if (read[i + j] == 7) {"
            " found = true; break; } if (found) value = simd_shuffle_xor(value, 1);",
            2,
        ),
        ("if (lane > 7 || simd_any(value > count)) value = simd_shuffle_xor(value, 1);", 2),
        ("if (lane > 7) value = simd_shuffle_xor(value, 1);", 0),
        ("uint j = 0; while (read[i + j]) ++j; if (j > 3) value = simd_shuffle_xor(value, 1);", 0),
    ],
)
def test_lanes_wait_for_those_that_come_another_way(body: str, waits: int) -> None:
    assert ptx_of(body).count("match.any.sync") == waits


def asks(ptx: str) -> tuple[int, int]:
    """How often the hardware is asked which lanes are there, and how often lanes vote."""
    return ptx.count("activemask"), ptx.count("vote.sync.ballot")


# Lanes that left a loop with atomics do not wait for those that are still in it.
LOOSE = (
    "for (uint n = 0; n < lane; ++n) atomic_fetch_add_explicit((device atomic_uint*)written +"
    " read[n], 1, memory_order_relaxed);"
)


@pytest.mark.parametrize(
    ("body", "votes"),
    [
        # One for the way of a branch or the rounds of a loop, one for who is there still.
        ("written[0] = simd_is_first();", 1),
        ("if (value > 7) written[0] = simd_is_first();", 2),
        ("if (value > 7) written[simd_is_first()] = 1; else written[2 + simd_is_first()] = 2;", 4),
        ("for (uint j = 0; j < lane; ++j) written[j] = simd_is_first();", 3),
        ("for (uint j = 0; j < lane; ++j) { if (read[j]) continue; written[j] = simd_is_first();"
         " if (read[j + 1]) continue; ++value; }", 4),
        ("if (value > 7) { for (uint j = 0; j < read[i]; ++j) written[j] += 1;"
         " written[9] = simd_is_first(); }", 2),
        ("switch (value) { case 1: written[1] = simd_is_first(); break;"
         " case 2: case 5: written[2] = simd_is_first(); break; default: written[3] = 1; }", 4),
    ],
)  # fmt: skip
def test_lanes_behind_a_loose_loop_vote_instead_of_being_asked_for(body: str, votes: int) -> None:
    assert asks(ptx_of(f"{LOOSE} {body}")) == (0, votes)


@pytest.mark.parametrize(
    ("body", "asked", "votes"),
    [
        # All come to `else`, or some of them: the way to the first place passes it by.
        ("if (count && read[i] > 7) written[0] = simd_is_first();"
         " else written[1] = simd_is_first();", 1, 2),
        ("if (count || read[i] > 7) written[0] = simd_is_first();"
         " else written[1] = simd_is_first();", 1, 2),
        ("if (value > 9) { if (count && read[i]) written[0] = 1;"
         " else written[1] = simd_is_first(); }", 1, 0),
    ],
)  # fmt: skip
def test_vote_does_not_wait_for_lanes_that_pass_it_by(body: str, asked: int, votes: int) -> None:
    """They wait for the others where both ways meet."""
    assert asks(ptx_of(f"{LOOSE} {body}")) == (asked, votes)


NEXT_ROUND = """
define void @kernel(ptr addrspace(1) %p) {
entry:
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  br label %loose
loose:
  %n = phi i32 [ 0, %entry ], [ %next, %loose ]
  %next = add i32 %n, 1
  %old = atomicrmw add ptr addrspace(1) %p, i32 1 monotonic
  %more = icmp ult i32 %next, %lane
  br i1 %more, label %loose, label %round
round:
  %value = load volatile i32, ptr addrspace(1) %p, align 4
  %zero = icmp eq i32 %value, 0
  br i1 %zero, label %left, label %right
left:
  %one = icmp eq i32 %value, 1
  br i1 %one, label %again, label %asking
right:
  %two = icmp eq i32 %value, 2
  br i1 %two, label %again, label %asking
asking:
  %here = call i32 @llvm.nvvm.activemask()
  %three = icmp eq i32 %value, 3
  br i1 %three, label %end, label %again
again:
  br label %round
end:
  ret void
}
"""


def test_vote_does_not_wait_for_lanes_in_the_next_round() -> None:
    module = parse(NEXT_ROUND)
    count_lanes(module, module.function("kernel"), {})
    assert "activemask" in str(module)
    assert "vote.ballot" not in str(module)


@pytest.mark.parametrize(
    "body",
    [
        "written[0] = simd_is_first();",
        "if (value > 7) written[0] = simd_is_first();",
        f"written[0] = simd_is_first(); {LOOSE}",
        f"{LOOSE.replace('< lane', '< count')} written[0] = simd_is_first();",
    ],
)
def test_lanes_that_the_hardware_lets_meet_are_asked_for(body: str) -> None:
    assert asks(ptx_of(body)) == (1, 0)


@pytest.mark.parametrize(
    "parted",
    [
        "for (uint j = 0; j < lane; ++j) value += read[j];",
        "if (lane > 7) value += atomic_fetch_add_explicit((device atomic_uint*)written, 1,"
        " memory_order_relaxed);",
    ],
)
def test_lanes_that_were_parted_wait_for_the_rest_before_they_ask(parted: str) -> None:
    assert asks(ptx_of(f"{parted} written[0] = simd_is_first();")) == (0, 1)


def test_lanes_wait_behind_an_inner_loop_before_the_outer_branchs_end() -> None:
    """Some leave both at once, others the loop first: all wait for each other in one order."""
    ptx = ptx_of(
        "for (uint j = 0; j < read[i] % 25; j += 3) { if (value <= j) return;"
        " value = (lane < 7 ? read[j] : simd_max(value)) * 3 + j; } value += simd_sum(value);"
    )
    wait = r"\s*match\.any\.sync\.b32\s+%r\d+, \d+, (\S+);\n"
    both = re.findall(wait + wait, ptx)
    assert both
    assert all(inner != ALL and outer == ALL for inner, outer in both)


# Lanes come to the collective from two places, and some leave the loop there.
CROSSING = (
    "for (uint j = 0; j < 8; ++j) { if (read[value]) { value = read[value + i]; continue; }"
    " written[j] = simd_is_first(); if (read[i + j]) break; }"
)


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("while (read[value]) value = read[value + i];", True),
        ("while (read[value]) value = read[value + i]; written[0] = simd_is_first();", True),
        (f"while (read[value]) value = read[value + i]; {CROSSING}", False),
    ],
)
def test_lanes_that_cannot_be_counted_meet_behind_a_clock(body: str, ends: bool) -> None:
    """An assertion that does not come back is a second way out of its loop for the assembler."""
    ptx = ptx_of(body)
    assert "__assertfail" in ptx
    assert ("activemask" in ptx) == (not ends)
    assert bool(re.search(r"^\s*exit;", ptx, re.MULTILINE)) == ends
