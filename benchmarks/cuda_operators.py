"""Operators on an NVIDIA GPU beside torch's own kernels, Triton's and a copy of the same bytes;
beside a kernel that reads them, where an operator writes next to nothing.

    python benchmarks/cuda_operators.py --compile kernels.bundle
    ANYMETAL_BUNDLE=kernels.bundle python benchmarks/cuda_operators.py --triton

The first compiles, on any machine, what the table needs; the second prints it, with a GPU. Without
a bundle kernels are compiled on the spot, where a compiler is installed. Times are medians of CUDA
events, the L2 cache filled with something else before each run: by reading, since lines that were
written would have to go back to memory during the run. Results are compared with torch's first.
TB/s is the least traffic of the call over its time. A call is queued before the GPU begins with it:
what Python takes for a launch is a line of its own. Triton is torch.compile of torch's functions
(flex_attention for attention, a sum over unpacked weights for int4), and a kernel by hand for the
histogram; linear algebra has none.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config

from anymetal import compile_shader
from anymetal.linalg import LinAlgError
from cuda_rows import Draw, Row, read_of, rows

RUNS = 20
# Cycles that the GPU waits before a timed call, so that its launch is queued.
HEAD_START = 4_000_000
# Relative; bfloats that are rounded at other places differ by some thousandths.
TRITON_ERROR = 0.02


def medians(calls: dict[str, Callable[[], Any]], flush: torch.Tensor) -> dict[str, float]:
    """Milliseconds of one call of each, taken by turns, whose order changes: a call may find the
    memory as the one before left it."""
    order, turns = list(calls), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(RUNS):
        turns.shuffle(order)
        for name in order:
            times[name].append(_once(calls[name], flush))
    return {name: statistics.median(found) for name, found in times.items()}


def _once(call: Callable[[], Any], flush: torch.Tensor) -> float:
    flush.sum()
    torch.cuda._sleep(HEAD_START)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one)


def error_of(ours: Any, theirs: Any) -> float:
    """The largest relative difference of a result; -1 where there is nothing to compare."""
    found = [-1.0]
    for a, b in zip(tensors_in(ours), tensors_in(theirs), strict=False):
        exact = b.detach().double()
        found.append(float((a.detach().double() - exact).norm() / exact.norm().clamp_min(1e-300)))
    return max(found)


def check_triton(result: Any, expected: Any) -> None:
    """A kernel that computes something else is no comparison."""
    error = error_of(result, expected)
    if not 0 <= error <= TRITON_ERROR:
        raise ValueError(f"Triton's result differs from torch's by {error:.1e}")


def copy_of(bytes_moved: int) -> Callable[[], Any]:
    source = torch.empty(max(bytes_moved // 2, 1), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def measured(row: Row, flush: torch.Tensor, *, triton: bool) -> str:
    arguments = row.make(Draw("cuda", row.dtype))
    ours, theirs = row.ours(*arguments), row.theirs(*arguments)
    calls = {"ours": ours, "torch": theirs}
    if triton and row.triton is not None:
        calls["triton"] = row.triton(*arguments)
    result, expected = ours(), theirs()
    error = error_of(result, expected) if row.compares else -1.0
    if "triton" in calls:
        check_triton(calls["triton"](), expected)
    moved = row.moved(arguments, result) if row.moved else 0
    del result, expected
    if moved:
        calls["copy"] = copy_of(moved)
    if row.reads:
        calls["read"] = read_of(moved, "cuda")
    times = medians(calls, flush)
    scale, unit, digits = (row.flops, "TFLOP/s", 0) if row.flops else (moved, "TB/s", 2)
    rates = [scale / times[who] / 1e9 if scale else times[who] for who in ("ours", "torch")]
    if not scale:
        unit, digits = "ms", 3
    ratios = [
        f"{times[who] / times['ours']:.3f}" if who in times else ""
        for who in ("torch", "triton", "copy", "read")
    ]
    said = f"{error:.1e}" if error >= 0 else ""
    return (
        f"| {row.name} | {row.dtype_name} | {rates[0]:.{digits}f} | {rates[1]:.{digits}f} | {unit}"
        f" | {' | '.join(ratios)} | {said} |"
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


def table(wanted: Sequence[Row], *, triton: bool) -> None:
    flush = torch.zeros(64 * 2**20, device="cuda")
    # A gradient is asked for many times, and its inputs must be there each time.
    torch._functorch.config.donated_buffer = False
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {platform.platform()}, ",
        end="",
    )
    print(f"{datetime.now(timezone.utc):%Y-%m-%d}")
    print(
        "| | | ours | torch | | torch / ours | Triton / ours | copy / ours | read / ours | error |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in wanted:
        try:
            print(measured(row, flush, triton=triton), flush=True)
        except Exception as error:
            said = str(error).replace("\n", " ")[:300]
            print(f"| {row.name} | {row.dtype_name} | {type(error).__name__}: {said} |", flush=True)
        torch.cuda.empty_cache()
    ours, theirs = launch_overhead()
    print(f"a small launch from Python: {ours:.1f} us; torch's x.mul_: {theirs:.1f} us")


def compile_for(path: Path, wanted: Sequence[Row]) -> None:
    """Writes the bundle that the table needs, on a machine without a GPU."""
    from anymetal.engines.ahead import compile_bundle  # noqa: PLC0415
    from anymetal.launch.requested import requests  # noqa: PLC0415
    from anymetal.policy.policy import as_if_on  # noqa: PLC0415
    from anymetal.store.bundle import write_bundle  # noqa: PLC0415

    with as_if_on("cuda"), requests() as found:
        for row in wanted:
            # Nothing runs, so results mean nothing: a factorisation may be said to have failed.
            with contextlib.suppress(LinAlgError):
                row.ours(*row.make(Draw("cpu", row.dtype)))()
        compile_shader(SMALL).specialize("small")
        read_of(16, "cpu")()
    kernels = list({repr(one): one for one in found}.values())
    write_bundle(path, compile_bundle("cuda-sm90", kernels))
    print(f"{path}: {len(kernels)} kernels")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path, help="write the bundle that the table needs")
    parser.add_argument("--only", default="", help="rows whose name has one of these, by commas")
    parser.add_argument("--triton", action="store_true", help="torch.compile's kernels too")
    options = parser.parse_args()
    words = options.only.split(",")
    chosen = [row for row in rows() if any(word in row.name for word in words)]
    if options.compile:
        compile_for(options.compile, chosen)
    else:
        table(chosen, triton=options.triton)
