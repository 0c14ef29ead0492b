"""What calls on a GPU can have, each tried: edges, structs, lists, casts, errors, messages, limits.

    python tests/cuda/features.py --compile features.bundle
    ANYMETAL_BUNDLE=features.bundle python tests/cuda/features.py

The first compiles the kernels on any machine; the second runs them, compares with what Python
computes, and times a launch by either way into the driver.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import anymetal
from anymetal.engines.cuda import launcher
from anymetal.errors import BundleError
from anymetal.nouns import Scalar, Source

TEXT = """#include <metal_stdlib>
#include <metal_logging>
#include <c10/metal/error.h>
using namespace metal;
constant uint factor [[function_constant(0)]];
struct Numbers { float scale; uint count; half3 more; };
struct Wide { float values[64]; };

kernel void places(device uint* out, uint3 at [[thread_position_in_grid]],
                   uint3 grid [[threads_per_grid]], uint3 size [[threads_per_threadgroup]],
                   uint index [[thread_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint lanes [[simdgroups_per_threadgroup]]) {
  const uint i = (at.z * grid.y + at.y) * grid.x + at.x;
  out[i * 4] = size.x * 10000 + size.y * 100 + size.z;
  out[i * 4 + 1] = index;
  out[i * 4 + 2] = lanes * 100 + lane;
  out[i * 4 + 3] = simd_sum(1u) * factor;
}
kernel void structs(device float* x, constant Numbers& numbers, constant Wide& wide,
                    uint i [[thread_position_in_grid]]) {
  if (i < numbers.count) x[i] = numbers.scale * i + float(numbers.more.z) + wide.values[i % 64];
}
kernel void lists(device float* y, constant array<device float*, 3>& parts [[buffer(1)]],
                  constant long* numbers [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = parts[0][i] + 2 * parts[1][i] + 3 * parts[2][i] + numbers[i % 5];
}
kernel void casts(device float* y, constant half& h, constant uchar& u, constant short2& s,
                  uint i [[thread_position_in_grid]]) {
  y[i] = float(h) + u + s.x * s.y;
}
kernel void refuses(device int* x, device c10::metal::ErrorMessages* errors,
                    uint i [[thread_position_in_grid]]) {
  if (x[i] < 0) TORCH_REPORT_ERROR(errors, "negative: ", x[i]);
}
kernel void talks(device const float* x, uint2 at [[thread_position_in_grid]]) {
  if (at.x == at.y) os_log_default.log_error("%u holds %.2f", at.x, x[at.x]);
}
kernel void tells(device const float* x, uint2 at [[thread_position_in_grid]]) {
  if (at.y == 7 || at.y == 70000) os_log_default.log_error("row %u, %.0f", at.y, x[0]);
}
kernel void waits(device atomic_uint* x, uint i [[thread_position_in_threadgroup]]) {
  if (i < 32) while (atomic_load_explicit(x, memory_order_relaxed) == 0) {}
  threadgroup_barrier(mem_flags::mem_device);
}
kernel void waits_apart(device atomic_uint* x, uint i [[thread_position_in_threadgroup]]) {
  for (uint k = i % 32; atomic_load_explicit(x, memory_order_relaxed) < k; k += k == 7) {}
  if (simd_is_first()) atomic_store_explicit(x, 1, memory_order_relaxed);
}
kernel void twice(device float* x, constant float& by, uint i [[thread_position_in_grid]]) {
  x[i] *= by;
}
"""
FACTOR: dict[str, Scalar] = {"factor": 7}


def edges(library: anymetal.ShaderLibrary) -> None:
    places = library.specialize("places", FACTOR)
    for grid, group in (((70, 1, 1), (32, 1, 1)), ((11, 7, 3), (8, 4, 2)), ((5, 5, 5), (5, 2, 3))):
        out = torch.zeros(*reversed(grid), 4, dtype=torch.int32)
        there = out.cuda()
        places(there, threads=grid, group_size=group)
        for z, y, x in torch.cartesian_prod(*(torch.arange(n) for n in reversed(grid))).tolist():
            starts = [a // g * g for a, g in zip((x, y, z), group, strict=True)]
            size = [min(g, n - s) for g, n, s in zip(group, grid, starts, strict=True)]
            index = ((z - starts[2]) * size[1] + y - starts[1]) * size[0] + x - starts[0]
            threads = size[0] * size[1] * size[2]
            lanes = min(32, threads - index // 32 * 32)
            nominal = size[0] * 10000 + size[1] * 100 + size[2]
            out[z, y, x] = torch.tensor(
                [nominal, index, -(-threads // 32) * 100 + index % 32, lanes * 7]
            )
        expect(torch.equal(there.cpu(), out), f"grid {grid} in threadgroups of {group}")


def structs(library: anymetal.ShaderLibrary) -> None:
    x, wide = torch.zeros(70).cuda(), [float(i) / 4 for i in range(64)]
    library.specialize("structs", FACTOR)(
        x, {"scale": 0.5, "count": 66, "more": [1, 2, 3]}, {"values": wide}
    )
    expected = torch.tensor([0.5 * i + 3 + wide[i % 64] if i < 66 else 0.0 for i in range(70)])
    expect(torch.equal(x.cpu(), expected), "structs, small and large")


def lists(library: anymetal.ShaderLibrary) -> None:
    y, parts = torch.zeros(50).cuda(), [torch.randn(50) for _ in range(3)]
    library.specialize("lists", FACTOR)(y, [part.cuda() for part in parts], [1, 2, 3, 4, 5])
    expected = parts[0] + 2 * parts[1] + 3 * parts[2] + torch.tensor([1.0, 2, 3, 4, 5]).repeat(10)
    torch.testing.assert_close(y.cpu(), expected)
    expect(True, "lists of tensors and of numbers")


def casts(library: anymetal.ShaderLibrary) -> None:
    y = torch.zeros(3).cuda()
    kernel = library.specialize("casts", FACTOR)
    kernel(y, 1.5, 200, [3, -4], arg_casts={1: "fp16", 2: "uint8", 3: "int16"})
    expect(y.tolist() == [1.5 + 200 - 12] * 3, "arg_casts")


def errors(library: anymetal.ShaderLibrary) -> None:
    kernel = library.specialize("refuses", FACTOR)
    kernel(torch.ones(40, dtype=torch.int32).cuda(), threads=40, error_buf_idx=1)
    values = torch.arange(40, dtype=torch.int32).cuda() - 1
    try:
        kernel(values, threads=40, error_buf_idx=1)
    except RuntimeError as error:
        expect("negative: -1" in str(error), f"error buffers: {error}")
    else:
        expect(False, "error buffers")


def messages(library: anymetal.ShaderLibrary) -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("anymetal.kernel").addHandler(handler)
    x = torch.arange(40.0).cuda() / 8
    library.specialize("talks", FACTOR)(x, threads=(40, 40), group_size=(16, 3))
    expected = [f"talks thread ({i}, {i}, 0): {i} holds {i / 8:.2f}" for i in range(40)]
    expected[0] = "talks thread 0: 0 holds 0.00"
    expect(sorted(said) == sorted(expected), f"os_log: {len(said)} messages, {said[:1]}")
    said.clear()
    library.specialize("tells", FACTOR)(x, threads=(1, 70001), group_size=(1, 1))  # in two parts
    expected = [f"tells thread (0, {row}, 0): row {row}, 0" for row in (7, 70000)]
    expect(said == expected, f"os_log of a large grid: {said}")


def missing(library: anymetal.ShaderLibrary) -> None:
    try:
        library.specialize("places", {"factor": 8})
    except BundleError as error:
        expect("'places', factor=8" in str(error), f"a kernel that is not bundled: {error}")


ENDLESS = """
import sys, torch
sys.path[:0] = [sys.argv[1]]
import anymetal, features
x = torch.zeros(1, dtype=torch.int32).cuda()
library = anymetal.compile_shader(features.TEXT)
library.specialize(sys.argv[2], features.FACTOR)(x, threads=64, group_size=64)
torch.cuda.synchronize()
"""


def endless(library: anymetal.ShaderLibrary) -> None:
    """Processes of their own: their contexts are lost."""
    del library
    for kernel in ("waits", "waits_apart"):
        _endless(kernel)


def _endless(kernel: str) -> None:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS, str(Path(__file__).parent), kernel],
        env={**os.environ, "ANYMETAL_TIME_LIMIT": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    seconds = time.perf_counter() - start
    lines = [line for line in done.stderr.splitlines() if "takes longer" in line]
    error = done.stderr.strip().splitlines()[-1:] or [""]
    named = bool(lines) and f"'{kernel}' takes longer than ANYMETAL_TIME_LIMIT" in lines[0]
    expect(
        named and done.returncode != 0,
        f"an endless loop, {kernel}: {seconds:.0f} s, {len(lines)} lines: {lines[:1]}; {error}",
    )


def overhead(library: anymetal.ShaderLibrary) -> None:
    """Microseconds of Python for a small launch, by either way."""
    x = torch.ones(256).cuda()
    found = launcher.bindings()
    ways = {"ctypes": None, **({"cuda-bindings": found} if found is not None else {})}
    times: dict[str, list[float]] = {name: [] for name in ways}
    kernels = {}
    for name, way in ways.items():
        launcher.bindings = lambda way=way: way  # type: ignore[assignment, misc]
        kernels[name] = anymetal.compile_shader(TEXT).specialize("twice", FACTOR)
        kernels[name](x, 1.0, threads=256, group_size=256)
    for _ in range(7):
        for name, way in ways.items():
            launcher.bindings = lambda way=way: way  # type: ignore[assignment, misc]
            kernel = kernels[name]
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(500):
                kernel(x, 1.0, threads=256, group_size=256)
            times[name].append((time.perf_counter() - start) / 500 * 1e6)
            torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(500):
        x.mul_(1.0)
    theirs = (time.perf_counter() - start) / 500 * 1e6
    torch.cuda.synchronize()
    best = {name: f"{min(values):.2f}" for name, values in times.items()}
    print(f"microseconds of a small launch: {best}, torch's mul_ {theirs:.2f}")


def expect(right: bool, what: str) -> None:
    print("right" if right else "WRONG", what, flush=True)
    if not right:
        _wrong.append(what)


_wrong: list[str] = []
PARTS: tuple[Callable[[anymetal.ShaderLibrary], None], ...] = (
    *(edges, structs, lists, casts, errors, messages, missing, endless, overhead),
)


def main() -> int:
    library = anymetal.compile_shader(TEXT)
    for part in PARTS:
        try:
            part(library)
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            expect(False, f"{part.__name__}: {type(error).__name__}: {str(error)[:300]}")
    return len(_wrong)


def _compile(path: Path) -> None:
    from anymetal.engines.ahead import compile_bundle  # noqa: PLC0415
    from anymetal.engines.compiler import Compiler  # noqa: PLC0415
    from anymetal.store.bundle import write_bundle  # noqa: PLC0415

    source = Source(TEXT)
    wanted = [(source, kernel, FACTOR) for kernel in Compiler(source).outline.kernels]
    write_bundle(path, compile_bundle("cuda-sm90", wanted))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path)
    options = parser.parse_args()
    if options.compile:
        _compile(options.compile)
    else:
        sys.exit(main())
