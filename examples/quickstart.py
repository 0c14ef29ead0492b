"""Two kernels and how they are called: `fill`, and `axpy` (y += a * x).

    python examples/quickstart.py

On a Mac the kernels run on the GPU, elsewhere on the processor.
"""

from __future__ import annotations

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// Positional argument i of the call is buffer i. One thread does one element.
kernel void fill(device float* out [[buffer(0)]], constant float& value [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  out[i] = value;
}

kernel void axpy(device float* y [[buffer(0)]], device const float* x [[buffer(1)]],
                 constant float& a [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] += a * x[i];
}
"""


def main() -> None:
    lib = compile_shader(SOURCE)
    print("kernels:", ", ".join(sorted(dir(lib))))

    for size in (1, 31, 33, 1000, 4099):
        y = torch.empty(size, device=DEVICE)
        lib.fill(y, 2.0)  # as many threads as the first tensor has elements
        x = torch.randn(size, device=DEVICE)
        lib.axpy(y, x, 0.5, threads=size, group_size=min(size, 256))
        torch.testing.assert_close(y, 2.0 + 0.5 * x)
        print(f"{size:5} elements: as torch computes them")


if __name__ == "__main__":
    main()
