"""Attention for one query a simdgroup: online softmax, so that no row of scores is in memory.

    python examples/attention.py

Each lane holds a part of the head; a score is a `simd_sum` over the lanes. The running maximum and
sum are the same in all lanes, and the output so far is scaled whenever the maximum grows.
"""

from __future__ import annotations

from typing import Any

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

constant constexpr uint WIDEST = 128;        // elements of a head
constant constexpr uint EACH = WIDEST / 32;  // of them in a lane

kernel void attention(device const float* q [[buffer(0)]], device const float* k [[buffer(1)]],
                      device const float* v [[buffer(2)]], device float* out [[buffer(3)]],
                      constant uint& queries [[buffer(4)]], constant uint& keys [[buffer(5)]],
                      constant uint& width [[buffer(6)]], constant float& scale [[buffer(7)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  uint query = group.x, head = group.y;
  q += (ulong(head) * queries + query) * width;
  out += (ulong(head) * queries + query) * width;
  k += ulong(head) * keys * width;
  v += ulong(head) * keys * width;

  float mine[EACH], sums[EACH];
  for (uint e = 0; e < EACH; e++) {
    uint at = lane + 32 * e;
    mine[e] = at < width ? q[at] * scale : 0.0f;
    sums[e] = 0;
  }

  float largest = -INFINITY, total = 0;
  for (uint key = 0; key < keys; key++, k += width, v += width) {
    float product = 0;
    for (uint e = 0; e < EACH; e++) {
      uint at = lane + 32 * e;
      if (at < width) product += mine[e] * k[at];
    }
    float score = simd_sum(product);
    float now = max(largest, score);
    float fade = precise::exp(largest - now);  // 0 at the first key: exp(-infinity)
    float weight = precise::exp(score - now);
    total = total * fade + weight;
    for (uint e = 0; e < EACH; e++) {
      uint at = lane + 32 * e;
      if (at < width) sums[e] = sums[e] * fade + weight * v[at];
    }
    largest = now;
  }
  for (uint e = 0; e < EACH; e++) {
    uint at = lane + 32 * e;
    if (at < width) out[at] = sums[e] / total;
  }
}
"""


def attention(lib: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q, k and v are [heads, length, width]."""
    heads, queries, width = q.shape
    if width > 128:
        raise ValueError(f"heads of {width} elements: the kernel has room for 128")
    out = torch.empty_like(q)
    lib.attention(
        *(q.contiguous(), k.contiguous(), v.contiguous(), out),
        *(queries, k.shape[1], width, width**-0.5),
        threads=(32 * queries, heads),
        group_size=(32, 1),
    )
    return out


def main() -> None:
    lib = compile_shader(SOURCE)
    for heads, queries, keys, width in [
        (1, 1, 1, 1),
        (3, 5, 33, 31),
        (2, 7, 100, 64),
        (1, 2, 9, 128),
    ]:
        q = torch.randn(heads, queries, width, device=DEVICE)
        k, v = (torch.randn(heads, keys, width, device=DEVICE) for _ in range(2))
        exact = (tensor.cpu().double()[None] for tensor in (q, k, v))
        wanted = torch.nn.functional.scaled_dot_product_attention(*exact)[0]
        found = attention(lib, q, k, v).cpu().double()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        print(f"{heads} heads, {queries} queries, {keys} keys, width {width}: agrees with float64")


if __name__ == "__main__":
    main()
