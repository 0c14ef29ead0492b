"""Memory on an NVIDIA GPU: copies that run by themselves, rows spread over banks, what is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.cuda.assemble import assemble

from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.assembly import lines_of
from anymetal.engines.cuda.banks import rows_share_banks, spread_over_banks
from anymetal.engines.cuda.copies import copy_by_themselves
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.engines.cuda.keeping import keep_what_is_read
from anymetal.nouns import Source

# Two buffers of 16 rows, STRIDE elements apart: one is filled while the other is multiplied.
SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void products(FROM const half* x, device float* c, constant uint& steps,
                     uint i [[thread_index_in_threadgroup]]) {
  threadgroup half tiles[2 * 16 * STRIDE];
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0);
  for (uint step = 0; step < steps; ++step) {
    threadgroup uint4* to = (threadgroup uint4*)(tiles + step % 2 * 16 * STRIDE) + i;
    FROM const uint4* from = (FROM const uint4*)(x + step * 16 * STRIDE) + i;
    const uint4 first = from[0], second = from[32];
    to[0] = first;
    to[32] = second;
    BETWEEN
    threadgroup const half* tile = tiles + (step + 1) % 2 * 16 * STRIDE;
    simdgroup_half8x8 left[2], right[2];
#pragma unroll
    for (uint k = 0; k < 2; ++k) {
      simdgroup_load(left[k], tile + k * 8, STRIDE);
      simdgroup_load(right[k], tile + k * 8 * STRIDE, STRIDE);
      simdgroup_multiply_accumulate(sum, left[k], right[k], sum);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  simdgroup_store(sum, c, 8);
}
"""


def built(stride: int = 32, between: str = "", memory: str = "device") -> CudaExecutable:
    defines = (("STRIDE", str(stride)), ("BETWEEN", between), ("FROM", memory))
    made = Compiler(Source(SOURCE, defines=defines)).compile("products", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    return made


def places(ptx: str, *words: str) -> list[int]:
    """Where each of the words first stands."""
    return [ptx.index(word) for word in words]


def test_copies_run_beside_the_products_and_are_waited_for_at_the_barrier() -> None:
    kernel = built()
    ptx = kernel.ptx
    assert ptx.count("cp.async.cg.shared.global") == 2
    assert "st.shared.v4" not in ptx
    order = places(ptx, "cp.async.cg", "mma.sync", "cp.async.wait_all", "barrier.sync")
    assert order == sorted(order)
    for processor in ("sm_80", "sm_90"):
        assert not assemble(kernel, processor).said


@pytest.mark.parametrize(
    "between",
    [
        "c[i] = float(tiles[i]);",  # what a thread has put there it may read again
        "to[0] = second;",  # the last value counts
        "to[step] = first;",  # perhaps the same place
    ],
)
def test_copies_that_something_may_meet_are_waited_for_at_once(between: str) -> None:
    assert "cp.async" not in built(between=between).ptx


def test_memory_that_the_kernel_may_write_is_not_copied_by_itself() -> None:
    source = SOURCE.replace("FROM const half* x", "device half* x")
    defines = (("STRIDE", "32"), ("BETWEEN", "x[i] = 0;"), ("FROM", "device"))
    made = Compiler(Source(source, defines=defines)).compile("products", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    assert "cp.async" not in made.ptx


SEGMENT = """
	ld.global.nc.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	BETWEEN
	st.shared.v4.b32 	[%rd2+32], {%r1, %r2, %r3, %r4};
	BEHIND
	barrier.sync 	0;
"""


@pytest.mark.parametrize(
    ("between", "behind", "moves"),
    [
        ("", "", True),
        ("", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%rd3];", True),
        ("add.s64 %rd1, %rd1, 16;", "", False),  # the address is another by then
        ("", "ld.shared.b32 %r9, [%rd3];", False),
        ("", "red.shared.add.u32 [%rd3], %r9;", False),
        ("", "$L__BB0_2:", False),  # others come here too
        ("@%p1 bra $L__BB0_2;", "", False),
        ("", "st.shared.b32 [%rd2+44], %r9;", False),
        ("bar.warp.sync -1;", "", False),
        ("add.s32 %r9, %r1, 1;", "", False),  # wanted in a register all the same
    ],
)
def test_what_stands_beside_a_copy_decides(between: str, behind: str, moves: bool) -> None:
    text = SEGMENT.replace("BETWEEN", between).replace("BEHIND", behind)
    assert ("cp.async" in copy_by_themselves(text)) is moves


TWO = """
	ld.global.nc.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	st.shared.v4.b32 	[%rd2], {%r1, %r2, %r3, %r4};
	BETWEEN
	ld.global.nc.v4.b32 	{%r5, %r6, %r7, %r8}, [%rd1+16];
	st.shared.v4.b32 	[%rd2+16], {%r5, %r6, %r7, %r8};
	barrier.sync 	0;
"""


@pytest.mark.parametrize(("between", "count"), [("", 2), ("add.s64 %rd2, %rd2, -16;", 0)])
def test_two_copies_go_to_places_of_their_own(between: str, count: int) -> None:
    made = copy_by_themselves(TWO.replace("BETWEEN", between))
    assert made.count("cp.async.cg") == count


# --- banks ----------------------------------------------------------------------------------------


def test_rows_that_lie_a_power_of_two_apart_share_banks() -> None:
    sharing = [distance for distance in range(16, 300, 16) if rows_share_banks(distance)]
    assert sharing == [d for d in range(16, 300, 16) if d % 32 == 0]


def test_kernels_whose_rows_have_room_between_them_stay_as_they_are() -> None:
    assert "%bank" not in built(stride=40).ptx
    kernel = built(stride=64)
    assert "%bank" in kernel.ptx
    for processor in ("sm_80", "sm_90"):
        assert not assemble(kernel, processor).said


def moved(address: int, offset: int = 0) -> int:
    """Where the code that is written for an access leads it, carried out."""
    text = f"\tmov.b32 \t%r1, 0;\n\tst.shared.b32 \t[%r1+{offset}], %r2;\n"
    registers = {"%r1": address}
    operations = {
        "mov": lambda a: a,
        "add": lambda a, b: a + b,
        "shr": lambda a, b: a >> b,
        "xor": lambda a, b: a ^ b,
        "and": lambda a, b: a & b,
    }
    for line in lines_of(spread_over_banks(text))[1:]:
        name = line.opcode.split(".")[0]
        if name == "st":
            assert line.address is not None
            return registers[line.address.base] + line.address.offset
        if name in operations:
            target, *operands = re.findall(r"%\w+|-?\b\d+\b", line.text.split("\t")[-1])
            values = (registers[o] if o in registers else int(o) for o in operands)
            registers[target] = operations[name](*values)
    raise AssertionError("no access is left")


def banks_of_rows(distance: int, first: int) -> Iterator[int]:
    return (moved(first + row * distance) % 128 // 16 for row in range(8))


@pytest.mark.parametrize("distance", [16, 32, 64, 128, 256])
def test_eight_rows_begin_in_eight_banks(distance: int) -> None:
    for matrix in range(9):
        for column in range(0, distance, 16):
            first = matrix * 8 * distance + column
            assert len(set(banks_of_rows(distance, first))) == 8


def test_every_byte_has_a_place_of_its_own_in_its_line() -> None:
    addresses = [moved(old) for old in range(0, 4096, 4)]
    assert sorted(addresses) == list(range(0, 4096, 4))
    assert all(
        new // 128 == old // 128 for old, new in zip(range(0, 4096, 4), addresses, strict=True)
    )


@pytest.mark.parametrize("offset", [16, 2048, 2064, -8, -2048, 6160])
def test_a_distance_leads_where_its_sum_does(offset: int) -> None:
    assert moved(8192 + 96, offset) == moved(8192 + 96 + offset)


def test_variables_have_whole_lines() -> None:
    text = ".shared .align 4 .b8 _ZN9am_shared1[100];\n"
    assert spread_over_banks(text) == ".shared .align 128 .b8 _ZN9am_shared1[128];\n"


@pytest.mark.parametrize(
    "line",
    ["cvta.shared.u64 %rd1, %rd2;", ".extern .shared .align 16 .b8 am_dynamic_memory[];"],
)
def test_memory_that_cannot_be_followed_stays(line: str) -> None:
    text = f"{line}\n\tst.shared.b32 \t[%rd2], %r1;\n"
    assert spread_over_banks(text) == text


STREAM = """
#include <metal_stdlib>
using namespace metal;

kernel void doubled(device const float4* x, device float4* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i] + x[i + 1];
}
kernel void counted(device const uint4* x, device atomic_uint* y,
                    uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(y, x[i].x + x[i].y + x[i].z + x[i].w, memory_order_relaxed);
}
kernel void added(device const float4* x, device float4* y, uint i [[thread_position_in_grid]]) {
  y[i] += x[i];
}
kernel void in_place(device float4* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }
"""
HINTED = "ld.global.nc.L2::cache_hint.v4.b32"
KEPT = "createpolicy.fractional.L2::evict_last.b64"


def streamed(kernel: str) -> CudaExecutable:
    made = Compiler(Source(STREAM)).compile(kernel, {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    return made


def test_what_is_read_stays_longer_than_what_is_written() -> None:
    found = streamed("doubled")
    assert found.ptx.count(HINTED) == 2
    assert found.ptx.count(KEPT) == 1
    assert found.ptx.index(KEPT) < found.ptx.index(HINTED)
    # Of what is written, the last threadgroups' stays: they are those of one policy or another.
    assert found.ptx.count("st.global.L2::cache_hint.v4.b32") == 1
    assert "selp.b64" in found.ptx
    assert not assemble(found, "sm_80").said


def test_what_a_kernel_in_place_reads_stays_too() -> None:
    found = streamed("in_place")
    assert found.ptx.count("ld.global.L2::cache_hint.v4.b32") == 1
    assert not assemble(found, "sm_80").said


def test_beside_read_only_memory_other_loads_have_no_hints() -> None:
    assert "ld.global.v4.b32" in streamed("added").ptx
    assert streamed("added").ptx.count(HINTED) == 1


def test_kernels_that_only_read_have_no_hints() -> None:
    assert "cache_hint" not in streamed("counted").ptx


def test_loads_of_other_functions_lack_the_policy() -> None:
    load = "\tld.global.nc.v4.b32 \t{%r1, %r2, %r3, %r4}, [%rd1];"
    function = f".func other()\n{{\n{load}\n}}\n"
    entry = f".visible .entry am_entry()\n{{\n{load}\n\tst.global.b32 \t[%rd2], %r1;\n}}"
    found = keep_what_is_read(function + entry)
    assert found.startswith(function)
    assert found.count(HINTED) == 1
