"""Several kernels in one run of clang: each has the program that it has alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from anymetal.engines.cpu.target import HOST
from anymetal.engines.cpu.threads.engine import ThreadEngine, ThreadExecutable
from anymetal.launch.bind import Binder
from anymetal.msl.compile import compile_program
from anymetal.msl.compile_many import OneByOne, compile_programs
from anymetal.msl.prepare import prepare
from anymetal.nouns import Source

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity.together import compile_together

TEXT = """
#include <metal_stdlib>
using namespace metal;
constant bool shifts [[function_constant(3)]];
constant float table[4] = {1, 3, 5, 7};
namespace inner {
template <typename T, int N>
[[kernel]] void sums(device T* out, const device T* in [[function_constant(shifts)]],
                     uint i [[thread_position_in_threadgroup]]) {
  threadgroup T seen[32];
  seen[i] = T(i + N);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = seen[31 - i] * T(simd_sum(float(seen[i]))) + (shifts ? in[i] : T(N));
}
template [[host_name("float_2")]] [[kernel]] decltype(sums<float, 2>) sums<float, 2>;
template [[host_name("half_3")]] [[kernel]] decltype(sums<half, 3>) sums<half, 3>;
template [[host_name("bfloat_4")]] [[kernel]] decltype(sums<bfloat, 4>) sums<bfloat, 4>;
}
struct Pair { float4 v; int n; };
kernel void plain(device float* out, constant Pair& pair, uint i [[thread_position_in_grid]]) {
  out[i] = (pair.v * table[i % 4] + pair.v)[i % 4] + pair.n;
}
"""
NAMES = ["float_2", "plain", "half_3", "bfloat_4"]


THREADS = (32, 1, 1)


def written(executable: ThreadExecutable) -> bytes:
    """What a kernel makes of the same memory."""
    out, given = torch.zeros(32), torch.arange(32.0) / 3
    binder = Binder(executable.name, executable.arguments, executable.used_buffers)
    frame = binder.take_frame()
    binder.bind(frame, (out, given), None, [])
    executable.launch(frame.address, THREADS, THREADS, workers=1)
    return bytes(out.view(torch.uint8).tolist())


@pytest.mark.parametrize("shifts", [False, True])
def test_programs_are_those_of_single_kernels(shifts: bool) -> None:
    prepared = prepare(Source(TEXT))
    programs = compile_programs(prepared, NAMES, {"shifts": shifts}, HOST)
    singles = [compile_program(prepared, name, {"shifts": shifts}, HOST) for name in NAMES]
    assert [one.name for one in programs] == NAMES
    assert [one.arguments for one in programs] == [one.arguments for one in singles]
    assert len(programs[0].arguments) == (3 if shifts else 2)
    for together, single in zip(compile_together(programs), singles, strict=True):
        found = written(together)
        assert found == written(ThreadEngine().compile(single)), single.name
        assert any(found)


def test_what_is_done_for_one_kernel_is_left_to_it() -> None:
    text = """
    kernel void f(device float* out, uint i [[thread_index_in_threadgroup]]) {
      threadgroup float start[2] = {4, 5};
      out[i] = start[i % 2];
    }
    """
    with pytest.raises(OneByOne, match="am_place_initial_values"):
        compile_programs(prepare(Source(text)), ["f"], {}, HOST)
    wrong = "kernel void f(device float* out) { out[0] = out; }"
    with pytest.raises(OneByOne, match="assigning to"):
        compile_programs(prepare(Source(wrong)), ["f"], {}, HOST)
