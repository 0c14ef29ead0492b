"""What a kernel writes past its threadgroup memory, past what its threads keep at a barrier, or to
a tensor without elements does not reach the program's own memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# In a process of its own: a write that is not stopped damages its heap.
PROGRAM = """
import torch, anymetal
from anymetal.errors import KernelFault

lib = anymetal.compile_shader('''
#include <metal_stdlib>
using namespace metal;
kernel void shared(device float* x, constant int& by, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float all[64];
  all[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  all[int(i) + by] = 2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = all[63 - i];
}
kernel void given(device float* x, constant int& by, threadgroup float* all [[threadgroup(0)]],
                  uint i [[thread_position_in_threadgroup]]) {
  all[int(i) + by] = 2;
  x[i] = 2;
}
kernel void own(device float* x, constant int& by, uint i [[thread_position_in_threadgroup]]) {
  float kept[8];
  for (int k = 0; k < 8; ++k) kept[k] = k;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  kept[by] = 2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = kept[2];
}
kernel void reads(device float* x, constant int& by, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float all[64];
  all[i] = 2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = all[int(i) + by] > 1 ? 2 : 2;
}
kernel void fill(device float* x, uint i [[thread_position_in_grid]]) { x[i] = 2; }
''')

def end(name, by, **more):
    x = torch.ones(64)
    try:
        getattr(lib, name)(x, by, threads=64, group_size=64, **more)
    except KernelFault as error:
        assert f"'{name}'" in str(error) and "anymetal check" in str(error), error
        return "threadgroup" if "outside of its threadgroup memory" in str(error) else "elsewhere"
    assert x.eq(2).all(), x
    return "fine"

memory = {"threadgroup_memory": {0: 256}}
for _ in range(3):
    assert end("shared", 0) == "fine"
    for by in (64 + 64, 1 << 15, -(1 << 18)):
        assert end("shared", by) == "threadgroup", by
        assert end("given", by, **memory) == "threadgroup", by
    assert end("given", 0, **memory) == "fine"
    assert end("own", 2) == "fine"
    assert end("own", 1 << 14) == "elsewhere"
    assert end("reads", 64) == end("reads", 1 << 15) == "fine"
    lib.fill(torch.empty(0), threads=1_000_000)
"""


@pytest.mark.parametrize("engine", ["simdgroup", "coroutine"])
def test_writes_past_the_end_are_stopped(engine: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "ANYMETAL_ENGINE": engine},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
