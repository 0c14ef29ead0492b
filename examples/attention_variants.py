"""Causal, sliding-window and grouped-query attention from one template.

    python examples/attention_variants.py

What differs is which keys a query may see, and whose keys it reads. The first is two bounds of the
loop over keys, so that keys outside a window are never read; the second is a division.
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

template <bool Causal, bool Window>
kernel void attention(device const float* q [[buffer(0)]], device const float* k [[buffer(1)]],
                      device const float* v [[buffer(2)]], device float* out [[buffer(3)]],
                      constant uint& queries [[buffer(4)]], constant uint& keys [[buffer(5)]],
                      constant uint& shared_by [[buffer(6)]], constant uint& window [[buffer(7)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint2 groups [[threadgroups_per_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  constexpr uint width = 64;
  uint query = group.x, head = group.y;
  ulong row = (ulong(head) * queries + query) * width + 2 * lane;
  ulong first_key = ulong(head / shared_by) * keys * width + 2 * lane;  // grouped queries

  // The last query belongs to the last key, also where there are more keys than queries.
  uint position = query + keys - queries;
  uint end = Causal ? position + 1 : keys;
  uint begin = Window && position + 1 > window ? position + 1 - window : 0;

  float2 mine = *(device const float2*)(q + row) * rsqrt(float(width));
  float2 sums = 0;
  float largest = -INFINITY, total = 0;
  for (uint key = begin; key < end; key++) {
    float score = simd_sum(dot(mine, *(device const float2*)(k + first_key + key * width)));
    float now = max(largest, score);
    float fade = precise::exp(largest - now), weight = precise::exp(score - now);
    total = total * fade + weight;
    sums = sums * fade + weight * *(device const float2*)(v + first_key + key * width);
    largest = now;
  }
  *(device float2*)(out + row) = sums / total;
}

#define INSTANCE(NAME, CAUSAL, WINDOW) \\
  template [[host_name(NAME)]] kernel void attention<CAUSAL, WINDOW>( \\
      device const float*, device const float*, device const float*, device float*, \\
      constant uint&, constant uint&, constant uint&, constant uint&, uint2, uint2, uint)

INSTANCE("attention", false, false);
INSTANCE("attention_causal", true, false);
INSTANCE("attention_window", true, true);
"""


def attention(
    kernel: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 0
) -> torch.Tensor:
    """q is [heads, queries, 64], k and v are [fewer heads, keys, 64]."""
    heads, queries, _ = q.shape
    out = torch.empty_like(q)
    shape = (queries, k.shape[1], heads // k.shape[0], window)
    kernel(q, k, v, out, *shape, threads=(32 * queries, heads), group_size=(32, 1))
    return out


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, window: int
) -> torch.Tensor:
    q, k, v = (tensor.cpu().double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[0] // k.shape[0], 0) for tensor in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    behind = torch.arange(k.shape[1]) - (
        torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    )
    if causal:
        scores = scores.masked_fill(behind > 0, -torch.inf)
    if window:
        scores = scores.masked_fill(behind <= -window, -torch.inf)
    return scores.softmax(-1) @ v


def main() -> None:
    lib = compile_shader(SOURCE)
    cases = [("attention", False, 0), ("attention_causal", True, 0), ("attention_window", True, 5)]
    for name, causal, window in cases:
        for heads, key_heads, queries, keys in [(4, 4, 9, 9), (6, 2, 3, 33), (4, 1, 1, 20)]:
            q = torch.randn(heads, queries, 64, device=DEVICE)
            k, v = (torch.randn(key_heads, keys, 64, device=DEVICE) for _ in range(2))
            found = attention(getattr(lib, name), q, k, v, window).cpu().double()
            wanted = reference(q, k, v, causal, window)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        print(f"{name}: agrees with float64, with heads of their own, grouped and single keys")


if __name__ == "__main__":
    main()
