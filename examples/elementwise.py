"""SiLU in float, half and bfloat: four elements a thread, and a tail of up to three.

    python examples/elementwise.py

One template serves every type; arithmetic is in float and is rounded once, when it is stored.
"""

from __future__ import annotations

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

inline float silu(float x) { return x / (1.0f + precise::exp(-x)); }

template <typename T>
kernel void silu_kernel(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                        constant uint& size [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  uint first = 4 * i;
  if (first + 4 <= size) {
    vec<T, 4> four = *(device const vec<T, 4>*)(x + first);
    for (uint k = 0; k < 4; k++) four[k] = T(silu(float(four[k])));
    *(device vec<T, 4>*)(y + first) = four;
  } else {  // the last thread, where the size is no multiple of 4
    for (uint k = first; k < size; k++) y[k] = T(silu(float(x[k])));
  }
}

#define INSTANCE(T) \\
  template [[host_name("silu_" #T)]] kernel void silu_kernel<T>( \\
      device const T*, device T*, constant uint&, uint)

INSTANCE(float);
INSTANCE(half);
INSTANCE(bfloat);
"""

NAMES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}
# A value between two numbers of a type goes to the nearer one: half of the gap at most.
ROUNDING = {torch.float32: 2e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}


def silu(lib: object, x: torch.Tensor) -> torch.Tensor:
    # A view that starts inside of its storage may break the alignment of vec<T, 4>.
    if not x.is_contiguous() or x.storage_offset() % 4:
        x = x.clone(memory_format=torch.contiguous_format)
    y = torch.empty_like(x)
    threads = (x.numel() + 3) // 4  # not rounded up to whole threadgroups: Metal cuts the last one
    if threads:
        kernel = getattr(lib, f"silu_{NAMES[x.dtype]}")
        kernel(x, y, x.numel(), threads=threads, group_size=min(threads, 256))
    return y


def main() -> None:
    lib = compile_shader(SOURCE)
    for dtype, bound in ROUNDING.items():
        for size in (0, 1, 3, 4, 5, 1021, 4096):
            x = 4 * torch.randn(size, dtype=dtype, device=DEVICE)
            wanted = torch.nn.functional.silu(x.cpu().double())
            torch.testing.assert_close(silu(lib, x).cpu().double(), wanted, rtol=bound, atol=1e-6)
        view = torch.randn(101, dtype=dtype, device=DEVICE)[1:]
        wanted = torch.nn.functional.silu(view.cpu().double())
        torch.testing.assert_close(silu(lib, view).cpu().double(), wanted, rtol=bound, atol=1e-6)
        print(f"{dtype}: every size and a view agree with float64")


if __name__ == "__main__":
    main()
