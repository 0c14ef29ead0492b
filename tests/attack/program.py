"""A program that makes the cache hold every kind of file, two of each where that can be."""

from __future__ import annotations

import os
import time

import torch

from anymetal import check, compile_shader
from anymetal.launch.structs import reflected
from anymetal.nouns import Source
from anymetal.policy.tuning_cache import Key, Trial, Tuned, keep, read

SOURCE = """#include <metal_stdlib>
using namespace metal;
struct Two { float a; uint n; };
kernel void turned(device float* x, uint i [[thread_position_in_grid]]) {
  threadgroup float tile[64];
  tile[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = tile[63 - i] * FACTOR;
}
kernel void counted(device atomic_uint* total, device float* x, constant Two& two,
                    uint i [[thread_position_in_grid]]) {
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  atomic_fetch_add_explicit(total, uint(x[i] * two.a) + two.n, memory_order_relaxed);
}
"""


def results(new: bool) -> dict[str, object]:
    """What the kernels compute, plain, checked and counted; the same each time.

    `new`: compile kernels, besides, that no cache has.
    """
    found: dict[str, object] = {}
    if new:
        _compile_new()
    for factor in (2, 3):
        library = compile_shader(SOURCE, defines={"FACTOR": factor}, fast_math=factor == 2)
        x = torch.arange(64, dtype=torch.float32)
        library.turned(x, threads=64, group_size=64)
        found[f"turned {factor}"] = x.tolist()
        with check() as report:
            library.turned(x, threads=64, group_size=64)
            total = torch.zeros(1, dtype=torch.int32)
            library.counted(total, x, [1.0, 0.0], threads=64)
        found[f"checked {factor}"] = [x.tolist(), total.tolist()]
        found[f"findings {factor}"] = [finding.kind for finding in report.findings]
        found[f"counts {factor}"] = str(library.turned.count(x, threads=64, group_size=64))
    found["arguments"] = sorted(reflected(Source(SOURCE.replace("FACTOR", "4"))))
    found["tuned"] = _tuned()
    return found


def _compile_new() -> None:
    """The compiler needs the headers and the checks."""
    x = torch.ones(64)
    for fast_math in (False, True):
        source = f"{SOURCE}// {time.time_ns()} of {os.getpid()}"
        library = compile_shader(source, defines={"FACTOR": 1}, fast_math=fast_math)
        with check():
            library.turned(x, threads=64, group_size=64)
            library.counted(torch.zeros(1, dtype=torch.int32), x, [1.0, 0.0], threads=64)
    assert x.tolist() == [1.0] * 64


def _tuned() -> list[int]:
    """Measured launch shapes: what was kept is found, or was lost and is measured again."""
    found = []
    for size in (64, 128):
        key = Key("softmax", "float32", f"rows of {size}", "rows", *("none",) * 5, "none")
        tuned = read(key)
        if tuned is None:
            best = Trial(size, {}, 1.0)
            tuned = Tuned(key, best, (best,))
            keep(tuned)
        assert tuned.best is not None
        found.append(tuned.best.group_size)
    return found
