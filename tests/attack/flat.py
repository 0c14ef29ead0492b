"""Memory over many launches and many compilations: code goes when its library does."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# In a process of 350 MB. LLVM and the allocator keep some KiB a kernel; code that stays, its
# context or its pass managers took 80 to 170.
ALLOWED = 16 << 20
_KERNEL = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float* x, uint i [[thread_position_in_grid]]) {{
  threadgroup float tile[64];
  tile[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = tile[63 - i] + {number};
}}"""


def attack_flat(only: str, scale: float = 1.0) -> Iterator[tuple[str, str]]:
    """Each kind of work, done many times, and by how much memory grew where that is too much."""
    with tempfile.TemporaryDirectory(prefix="anymetal-flat-") as cache:
        os.environ["ANYMETAL_CACHE_DIR"] = cache
        for name, (work, times) in _works().items():
            if only in name:
                yield name, _grown(work, max(20, int(times * scale)))


def _works() -> dict[str, tuple[Callable[[int], None], int]]:
    import torch  # noqa: PLC0415

    from anymetal import check, compile_shader  # noqa: PLC0415

    x = torch.zeros(64)
    kept = compile_shader(_KERNEL.format(number=0.5)).k

    def compile_plain(number: int) -> None:
        compile_shader(_KERNEL.format(number=number)).k(x, threads=64, group_size=64)

    def compile_checked(number: int) -> None:
        with check():
            compile_plain(number)

    def compile_for_counts(number: int) -> None:
        kernel = compile_shader(_KERNEL.format(number=number)).k
        kernel.count(x, threads=64, group_size=64)

    def launch(_: int) -> None:
        kept(x, threads=64, group_size=64)

    def launch_checked(_: int) -> None:
        with check():
            kept(x, threads=64, group_size=64)

    return {
        "launches": (launch, 20_000),
        "checked-launches": (launch_checked, 20_000),
        "compilations": (compile_plain, 500),
        "checked-compilations": (compile_checked, 500),
        "counted-compilations": (compile_for_counts, 500),
    }


def _grown(work: Callable[[int], None], times: int) -> str:
    """The first tenth fills what is filled once."""
    first = max(10, times // 10)
    for number in range(first):
        work(number)
    before = resident_bytes()
    for number in range(first, first + times):
        work(number)
    grown = resident_bytes() - before
    if grown <= ALLOWED * max(0.25, min(1, times / 500)):
        return ""
    return f"{times} times take {grown >> 10} KiB more"


def resident_bytes() -> int:
    """Memory of this process, after everything that can go has gone."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    faults = {name: fault for name, fault in attack_flat(only, float(sys.argv[1])) if fault}
    print(faults)
    sys.exit(1 if faults else 0)
