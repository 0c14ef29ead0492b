"""What happens before the work: cold and warm compiles in fresh processes, and one small launch.

Run as a script it is the fresh process itself: `startup.py SOURCE` prints the microseconds from
`compile_shader` to the end of the first launch, counted after the imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import anymetal
from anymetal.evidence.timing import Times, measure, summarise
from workloads import KERNELS

SMALL = KERNELS / "small.metal"
LAUNCH_THREADS = 256


@dataclass(frozen=True)
class Compiles:
    """Times from `compile_shader` to the end of the first launch."""

    empty_cache: Times
    new_kernel: Times
    disk_cache: Times


def measure_compiles(rounds: int) -> Compiles:
    """Each round starts from an empty cache directory, so rounds are independent.

    empty_cache   nothing is there: the precompiled headers and the runtime are built as well
    new_kernel    the cache has seen another kernel, so only this one is compiled
    disk_cache    the same kernel again, from a new process
    """
    samples = [compile_round() for _ in range(rounds)]
    empty, new, disk = (list(column) for column in zip(*samples, strict=True))
    return Compiles(summarise(empty), summarise(new), summarise(disk))


def compile_round() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        first = fresh_process(folder, salt="// first kernel\n")
        new = fresh_process(folder, salt="// second kernel\n", factor="2.0f * factor")
        disk = fresh_process(folder, salt="// second kernel\n", factor="2.0f * factor")
        return first, new, disk


def fresh_process(cache: str, salt: str, factor: str = "factor") -> float:
    """Microseconds in a new interpreter; another `factor` makes another kernel."""
    source = Path(cache) / "source.metal"
    source.write_text(salt + SMALL.read_text().replace("* factor", f"* ({factor})"))
    done = subprocess.run(
        [sys.executable, __file__, str(source)],
        env={**os.environ, "ANYMETAL_CACHE_DIR": str(Path(cache) / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the compile in a fresh process failed:\n{done.stderr}")
    return float(json.loads(done.stdout)["microseconds"])


def compile_and_launch(source: str) -> float:
    x = torch.arange(LAUNCH_THREADS, dtype=torch.float32)
    y = torch.zeros_like(x)
    # The package imports LLVM when this name is first asked for: an import, not a compile.
    compile_shader = anymetal.compile_shader
    start = time.perf_counter()
    library = compile_shader(source)
    library.scale(x, y, 3.0, threads=(LAUNCH_THREADS,), group_size=(LAUNCH_THREADS,))
    elapsed = (time.perf_counter() - start) * 1e6
    if not torch.equal(y / y[1], x):
        raise AssertionError("the small kernel computed something else")
    return elapsed


def measure_launch(rounds: int) -> dict[str, Times]:
    """One launch of 256 threads in microseconds, beside torch's own smallest call."""
    kernel = anymetal.compile_shader(SMALL.read_text()).scale
    x = torch.arange(LAUNCH_THREADS, dtype=torch.float32)
    y = torch.zeros_like(x)

    def launch() -> None:
        kernel(x, y, 3.0, threads=(LAUNCH_THREADS,), group_size=(LAUNCH_THREADS,))

    launch()
    if not torch.equal(y, x * 3.0):
        raise AssertionError("the small kernel computed something else")
    calls = {"anymetal": launch, "torch CPU": lambda: torch.mul(x, 3.0, out=y)}
    return measure(calls, rounds=rounds, seconds=30)


if __name__ == "__main__":
    print(json.dumps({"microseconds": compile_and_launch(Path(sys.argv[1]).read_text())}))
