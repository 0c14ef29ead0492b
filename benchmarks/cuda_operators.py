"""Operators on an NVIDIA GPU beside torch's own kernels and a copy of the same bytes.

    python benchmarks/cuda_operators.py --compile kernels.bundle
    ANYMETAL_BUNDLE=kernels.bundle python benchmarks/cuda_operators.py

The first compiles, on any machine, what the table needs; the second prints it, with a GPU. Without
a bundle kernels are compiled on the spot, where a compiler is installed. Times are medians of CUDA
events, the L2 cache overwritten before each run. Every result is compared with torch's first. TB/s
is the least traffic of the call over its time. A call is queued before the GPU begins with it: what
Python takes for a launch is a line of its own.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from anymetal import compile_shader, ops

Tensors = list[torch.Tensor]
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
NAMES = {FP32: "fp32", BF16: "bf16", FP16: "fp16"}
RUNS = 20
HEAD_START = (
    1_000_000  # cycles that the GPU waits before a timed call, so that its launch is queued
)


@dataclass(frozen=True)
class Row:
    """One line: inputs by shape, our call and torch's. `flops` where arithmetic is the limit."""

    name: str
    dtype: torch.dtype
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., torch.Tensor]
    theirs: Callable[..., torch.Tensor]
    flops: int = 0
    more: int = 0  # results of the first one's size that ours writes besides


def rows() -> list[Row]:
    """The table's lines."""
    found = []
    large, long = (16384, 4096), (4096, 16384)
    for dtype in (FP32, BF16):
        flat = (64 * 2**20,)
        found += [
            Row("SiLU 64M", dtype, (flat,), ops.silu, F.silu),
            Row("SwiGLU 64M", dtype, (flat, flat), ops.swiglu, lambda a, b: F.silu(a) * b),
        ]
        for shape in (large, long):
            width, size = shape[-1:], f"{shape[0]} x {shape[1]}"
            found += [
                Row(f"RMSNorm {size}", dtype, (shape, width), _rms_norm, _torch_rms_norm),
                Row(f"LayerNorm {size}", dtype, (shape, width, width), _layer_norm, _torch_layer),
                Row(f"softmax {size}", dtype, (shape,), _softmax, _torch_softmax),
            ]
        found += [
            Row(
                "add_rms_norm 16384 x 4096",
                dtype,
                (large, large, large[-1:]),
                lambda x, y, w: ops.add_rms_norm(x, y, w.shape, w)[0],
                lambda x, y, w: F.rms_norm(x + y, w.shape, w),
                more=1,
            ),
            _matmul(dtype, 4096 if dtype != FP32 else 2048),
        ]
    return [*found, _attention(BF16, 16, 4096)]


def _rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ops.rms_norm(x, w.shape, w)


def _torch_rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, w.shape, w)


def _layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ops.layer_norm(x, w.shape, w, b)


def _torch_layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, w.shape, w, b)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return ops.softmax(x, -1)


def _torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, -1)


def _matmul(dtype: torch.dtype, size: int) -> Row:
    shape = (size, size)
    return Row(f"matmul {size}^3", dtype, (shape, shape), ops.matmul, torch.matmul, 2 * size**3)


def _attention(dtype: torch.dtype, heads: int, keys: int) -> Row:
    shape = (1, heads, keys, 128)

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return ops.scaled_dot_product_attention(q, k, v, is_causal=True)

    def theirs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    name = f"causal attention, {heads} heads, {keys} keys"
    return Row(name, dtype, (shape, shape, shape), ours, theirs, 2 * heads * keys**2 * 128)


# --- measuring ------------------------------------------------------------------------------------


def median(call: Callable[[], Any], flush: torch.Tensor) -> float:
    """Milliseconds of one call."""
    for _ in range(3):
        call()
    times = []
    for _ in range(RUNS):
        flush.zero_()
        torch.cuda._sleep(HEAD_START)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def measured(row: Row, flush: torch.Tensor) -> str:
    inputs = [torch.randn(shape, device="cuda").to(row.dtype) for shape in row.shapes]
    ours, theirs = row.ours(*inputs), row.theirs(*inputs)
    error = float((ours.double() - theirs.double()).norm() / theirs.double().norm())
    moved = sum(t.numel() * t.element_size() for t in (*inputs, ours, *[ours] * row.more))
    source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
    copy = torch.empty_like(source)
    milliseconds = [
        median(call, flush)
        for call in (
            lambda: row.ours(*inputs),
            lambda: row.theirs(*inputs),
            lambda: copy.copy_(source),
        )
    ]
    scale, unit = (row.flops, "TFLOP/s") if row.flops else (moved, "TB/s")
    rates = [scale / time / 1e9 for time in milliseconds]
    of_copy = "" if row.flops else f"{milliseconds[2] / milliseconds[0]:.2f}"
    digits = 0 if row.flops else 2
    return (
        f"| {row.name} | {NAMES[row.dtype]} | {rates[0]:.{digits}f} | {rates[1]:.{digits}f} "
        f"| {unit} | {milliseconds[1] / milliseconds[0]:.2f} | {of_copy} | {error:.1e} |"
    )


SMALL = """#include <metal_stdlib>
kernel void small(device float* x, constant uint& n, constant float& s,
                  uint i [[thread_position_in_grid]]) { if (i < n) x[i] *= s; }
"""


def launch_overhead() -> tuple[float, float]:
    """Microseconds of Python a launch, of our small kernel and of an operator of torch's."""
    kernel, x = compile_shader(SMALL).small, torch.ones(256, device="cuda")
    calls = (lambda: kernel(x, 256, 1.0, threads=256, group_size=256), lambda: x.mul_(1.0))
    found = []
    for call in calls:
        best = float("inf")
        for _ in range(20):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(200):
                call()
            best = min(best, (time.perf_counter() - start) / 200)
        found.append(best * 1e6)
    return found[0], found[1]


def table(wanted: Sequence[Row]) -> None:
    flush = torch.empty(256 * 2**20, dtype=torch.uint8, device="cuda")
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {platform.platform()}, ",
        end="",
    )
    print(f"{datetime.now(timezone.utc):%Y-%m-%d}")
    print("| | | ours | torch | | torch's time / ours | copy's time / ours | error |")
    print("|---|---|---|---|---|---|---|---|")
    for row in wanted:
        try:
            print(measured(row, flush), flush=True)
        except Exception as error:
            print(
                f"| {row.name} | {NAMES[row.dtype]} | {type(error).__name__}: {error} |", flush=True
            )
    ours, theirs = launch_overhead()
    print(f"a small launch from Python: {ours:.1f} us; torch's x.mul_: {theirs:.1f} us")


def compile_for(path: Path, wanted: Sequence[Row]) -> None:
    """Writes the bundle that the table needs, on a machine without a GPU."""
    from anymetal.engines.compiler import compile_bundle  # noqa: PLC0415
    from anymetal.launch.requested import requests  # noqa: PLC0415
    from anymetal.policy.policy import as_if_on  # noqa: PLC0415
    from anymetal.store.bundle import write_bundle  # noqa: PLC0415

    with as_if_on("cuda"), requests() as found:
        for row in wanted:
            row.ours(*(torch.empty(shape, dtype=row.dtype) for shape in row.shapes))
        compile_shader(SMALL).specialize("small")
    kernels = list({repr(one): one for one in found}.values())
    write_bundle(path, compile_bundle("cuda-sm90", kernels))
    print(f"{path}: {len(kernels)} kernels")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path, help="write the bundle that the table needs")
    parser.add_argument("--only", default="", help="rows whose name has this")
    options = parser.parse_args()
    chosen = [row for row in rows() if options.only in row.name]
    if options.compile:
        compile_for(options.compile, chosen)
    else:
        table(chosen)
