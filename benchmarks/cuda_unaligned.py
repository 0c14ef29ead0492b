"""What it costs on an NVIDIA GPU that vectors may lie at any element: times beside a copy's.

    python benchmarks/cuda_unaligned.py --compile kernels.bundle
    ANYMETAL_BUNDLE=kernels.bundle python benchmarks/cuda_unaligned.py

A kernel doubles rows of 4096 elements, four at a time by a cast: as its source promises that they
are aligned, as it looks at their addresses, and where they are not. Medians of CUDA events.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from anymetal import ShaderLibrary, compile_shader
from anymetal.engines.ahead import Request, compile_bundle
from anymetal.nouns import Source
from anymetal.store.bundle import write_bundle
from cuda_operators import copy_of, medians

ROWS, COLUMNS = 16384, 4096
TYPES = {"float": torch.float32, "half": torch.float16}
TEXT = """#include <metal_stdlib>
#include <anymetal/ahead.h>
using namespace metal;
#ifdef PROMISES
anymetal_vectors_are_aligned;
#endif
template <typename T>
[[kernel]] void doubled(device const T* x, device T* y, constant uint& columns,
                        uint2 at [[thread_position_in_grid]]) {
  const uint place = at.y * columns + 4 * at.x;
  const vec<T, 4> value = *reinterpret_cast<device const vec<T, 4>*>(x + place);
  *reinterpret_cast<device vec<T, 4>*>(y + place) = value + value;
}
template [[host_name("doubled_float")]] [[kernel]] decltype(doubled<float>) doubled<float>;
template [[host_name("doubled_half")]] [[kernel]] decltype(doubled<half>) doubled<half>;
"""
PROMISES = {"PROMISES": "1"}


def compile_all(path: Path) -> None:
    sources = [Source(TEXT), Source(TEXT, defines=tuple(PROMISES.items()))]
    names = [f"doubled_{name}" for name in TYPES]
    wanted: list[Request] = [(source, name, {}) for source in sources for name in names]
    write_bundle(path, compile_bundle("cuda-sm90", wanted))


def row(name: str, dtype: torch.dtype, flush: torch.Tensor) -> str:
    x = torch.randn(ROWS * COLUMNS + 4, device="cuda").to(dtype)
    y = torch.empty_like(x)

    def run(library: ShaderLibrary, start: int) -> None:
        kernel = getattr(library, f"doubled_{name}")
        shape = {"threads": (COLUMNS // 4, ROWS), "group_size": (256, 1)}
        kernel(x[start:], y[start:], COLUMNS, **shape)

    looks, promises = compile_shader(TEXT), compile_shader(TEXT, defines=PROMISES)
    for library, start in ((promises, 0), (looks, 0), (looks, 1)):
        run(library, start)
        assert torch.equal(y[start:-4], 2 * x[start:-4])
    calls = {
        "promises": lambda: run(promises, 0),
        "looks": lambda: run(looks, 0),
        "unaligned": lambda: run(looks, 1),
        "copy": copy_of(2 * ROWS * COLUMNS * dtype.itemsize),
    }
    times = medians(calls, flush)
    ratios = (f"{times['copy'] / times[call]:.3f}" for call in calls if call != "copy")
    return f"| {name}4 | {' | '.join(ratios)} |"


def main() -> None:
    flush = torch.zeros(64 * 2**20, device="cuda")
    print("| copy / ours | promises | looks | unaligned |")
    print("|---|---|---|---|")
    for name, dtype in TYPES.items():
        print(row(name, dtype, flush), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path)
    options = parser.parse_args()
    if options.compile:
        compile_all(options.compile)
    else:
        main()
