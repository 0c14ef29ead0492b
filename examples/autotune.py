"""Try threadgroup sizes for a kernel, keep the best on disk, and use it from then on.

    python examples/autotune.py
    python examples/autotune.py --file best.json

A size that gives a wrong result, or that cannot be launched, is never a candidate. A failed sweep
is not kept: the next start tries again. `anymetal tune` does the same for the package's operators.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader
SIZES = (32, 64, 128, 256, 512, 1024)

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void row_sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                     constant uint& columns [[buffer(2)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint in_group [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  float sum = 0;
  for (uint i = in_group; i < columns; i += threads) sum += x[ulong(row) * columns + i];
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    sum = simd_sum(lane < simds ? partial[lane] : 0.0f);
    if (lane == 0) out[row] = sum;
  }
}
"""


def launch(kernel: Any, x: torch.Tensor, group: int) -> torch.Tensor:
    out = torch.empty(x.shape[0], device=x.device)
    kernel(x, out, x.shape[1], threads=x.shape[0] * group, group_size=group)
    return out


def seconds(kernel: Any, x: torch.Tensor, group: int) -> float:
    times = []
    for _ in range(8):
        if DEVICE == "mps":
            torch.mps.synchronize()
        start = time.perf_counter()
        launch(kernel, x, group)
        if DEVICE == "mps":
            torch.mps.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])  # the first ones compile


def sweep(kernel: Any, x: torch.Tensor) -> int:
    wanted = x.cpu().double().sum(1).float()
    times = {}
    for group in SIZES:
        if group > kernel.max_threads_per_threadgroup:
            continue
        torch.testing.assert_close(launch(kernel, x, group).cpu(), wanted, rtol=1e-4, atol=1e-3)
        times[group] = seconds(kernel, x, group)
        print(f"  {group:5} threads: {1e6 * times[group]:8.1f} us")
    return min(times, key=times.__getitem__)


def best(kernel: Any, x: torch.Tensor, kept: Path) -> int:
    """The best size for tensors of this shape on this device, from the file if it is there."""
    # Whatever changes the answer belongs into the key: the source, the machine, the shape class.
    key = f"{DEVICE}/{torch.__version__}/row_sums/columns<={1 << (x.shape[1] - 1).bit_length()}"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    if known.get(key) not in SIZES:
        known[key] = sweep(kernel, x)
        kept.write_text(json.dumps(known, indent=1))
    return int(known[key])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="where the best sizes are kept")
    options = parser.parse_args(arguments)
    kernel = compile_shader(SOURCE).row_sums
    with tempfile.TemporaryDirectory() as folder:
        kept = options.file or Path(folder) / "best.json"
        for columns in (100, 3000):
            x = torch.randn(64, columns, device=DEVICE)
            group = best(kernel, x, kept)
            written = kept.read_text()
            if best(kernel, x, kept) != group or kept.read_text() != written:
                raise SystemExit("what was kept was not used")
            print(f"rows of {columns}: {group} threads")


if __name__ == "__main__":
    main()
