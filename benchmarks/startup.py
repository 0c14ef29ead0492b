"""What happens before the work: cold and warm compiles in fresh processes, and one small launch.

Run as a script it is the fresh process itself: `startup.py SOURCE` prints the microseconds from
`compile_shader` to the end of the first launch, counted after the imports; `startup.py TYPE`, with
a type of tiles, those of the first matrix product of that type.
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
# Elements of the tiles of 64 x 64 that `ops.matmul` has for matrices of this size.
TILE_TYPES = {"float": torch.float32, "half": torch.float16, "bfloat": torch.bfloat16}
TILED_SIDE = 512


@dataclass(frozen=True)
class Compiles:
    """Times from `compile_shader` to the end of the first launch."""

    empty_cache: Times
    new_kernel: Times
    disk_cache: Times
    tiles: dict[str, Times]


def measure_compiles(rounds: int) -> Compiles:
    """Each round starts from an empty cache directory, so rounds are independent.

    empty_cache   nothing is there: the precompiled headers and the runtime are built as well
    new_kernel    the cache has seen another kernel, so only this one is compiled
    disk_cache    the same kernel again, from a new process
    tiles         the first call of `ops.matmul` for matrices that it multiplies by tiles of
                  64 x 64, for each type of elements; the cache has seen another kernel
    """
    samples = [compile_round() for _ in range(rounds)]
    empty, new, disk, *tiles = (summarise(list(column)) for column in zip(*samples, strict=True))
    return Compiles(empty, new, disk, dict(zip(TILE_TYPES, tiles, strict=True)))


def compile_round() -> tuple[float, ...]:
    with tempfile.TemporaryDirectory() as folder:
        first = small_kernel(folder, salt="// first kernel\n")
        new = small_kernel(folder, salt="// second kernel\n", factor="2.0f * factor")
        disk = small_kernel(folder, salt="// second kernel\n", factor="2.0f * factor")
    return first, new, disk, *map(tiles_of, TILE_TYPES)


def tiles_of(kind: str) -> float:
    """Microseconds of the first product, with a cache of its own: types share no kernel, but what
    the source says of itself."""
    with tempfile.TemporaryDirectory() as folder:
        small_kernel(folder, salt="")
        return fresh_process(folder, kind)


def small_kernel(cache: str, salt: str, factor: str = "factor") -> float:
    """Microseconds of the small kernel; another `factor` makes another kernel."""
    source = Path(cache) / "source.metal"
    source.write_text(salt + SMALL.read_text().replace("* factor", f"* ({factor})"))
    return fresh_process(cache, str(source))


def fresh_process(cache: str, what: str) -> float:
    """Microseconds in a new interpreter."""
    done = subprocess.run(
        [sys.executable, __file__, what],
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


def first_product(kind: str) -> float:
    left, right = torch.randn(2, TILED_SIDE, TILED_SIDE).to(TILE_TYPES[kind])
    # An import here, not above: the small kernel's processes have nothing to do with operators.
    from anymetal.ops import matmul  # noqa: PLC0415

    start = time.perf_counter()
    result = matmul(left, right)
    elapsed = (time.perf_counter() - start) * 1e6
    if not torch.allclose(result.double(), left.double() @ right.double(), rtol=2e-2, atol=0.5):
        raise AssertionError("the matrix product is another one")
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
    what = sys.argv[1]
    taken = (
        first_product(what) if what in TILE_TYPES else compile_and_launch(Path(what).read_text())
    )
    print(json.dumps({"microseconds": taken}))
