// Five kernels as people write them, with a group size that the caller chooses.
#include <metal_stdlib>
using namespace metal;

struct Sizes { uint m; uint n; uint k; };

kernel void gemm(device const float* a, device const float* b, device float* c,
                 constant Sizes& size, uint i [[thread_position_in_grid]]) {
  if (i >= size.m * size.n) return;
  uint row = i / size.n, column = i % size.n;
  float sum = 0;
  for (uint k = 0; k < size.k; ++k)
    sum = fma(a[row * size.k + k], b[k * size.n + column], sum);
  c[i] = sum;
}

// One query a simdgroup; a lane has every 32nd key. n keys, k numbers each.
kernel void attention(device const float* q, device const float* keys, device const float* values,
                      device float* out, constant Sizes& size,
                      uint thread_number [[thread_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  uint row = thread_number / 32;
  if (row >= size.m) return;
  float most = -INFINITY;
  for (uint j = lane; j < size.n; j += 32) {
    float score = 0;
    for (uint d = 0; d < size.k; ++d) score += q[row * size.k + d] * keys[j * size.k + d];
    most = max(most, score * rsqrt(float(size.k)));
  }
  most = simd_max(most);
  float total = 0;
  for (uint d = 0; d < size.k; ++d) {
    float sum = 0, weights = 0;
    for (uint j = lane; j < size.n; j += 32) {
      float score = 0;
      for (uint e = 0; e < size.k; ++e) score += q[row * size.k + e] * keys[j * size.k + e];
      float weight = exp(score * rsqrt(float(size.k)) - most);
      weights += weight;
      sum += weight * values[j * size.k + d];
    }
    total = simd_sum(weights);
    sum = simd_sum(sum);
    if (lane == 0) out[row * size.k + d] = sum / total;
  }
}

// The k largest of each row of n, one row a thread.
kernel void topk(device const float* x, device float* out, constant Sizes& size,
                 uint row [[thread_position_in_grid]]) {
  if (row >= size.m) return;
  float below = INFINITY;
  uint last = 0;
  for (uint place = 0; place < size.k; ++place) {
    float best = -INFINITY;
    uint at = 0;
    for (uint j = 0; j < size.n; ++j) {
      float value = x[row * size.n + j];
      bool later = value < below || (value == below && j > last);
      if (place > 0 && !later) continue;
      if (value > best) { best = value; at = j; }
    }
    out[row * size.k + place] = best;
    below = best;
    last = at;
  }
}

// Sums of all elements up to each, one row a simdgroup.
kernel void scan(device const float* x, device float* y, constant Sizes& size,
                 uint thread_number [[thread_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]]) {
  uint row = thread_number / 32;
  if (row >= size.m) return;
  float carried = 0;
  for (uint start = 0; start < size.n; start += 32) {
    uint j = start + lane;
    float value = j < size.n ? x[row * size.n + j] : 0.0f;
    float sum = simd_prefix_inclusive_sum(value);
    if (j < size.n) y[row * size.n + j] = carried + sum;
    carried += simd_shuffle(sum, 31);
  }
}

// m channels of n numbers, each with k weights of its own.
kernel void depthwise(device const float* x, device const float* w, device float* y,
                      constant Sizes& size, uint i [[thread_position_in_grid]]) {
  if (i >= size.m * size.n) return;
  uint channel = i / size.n, place = i % size.n;
  float sum = 0;
  for (uint t = 0; t < size.k; ++t) {
    int from = int(place + t) - int(size.k / 2);
    if (from >= 0 && from < int(size.n)) sum += w[channel * size.k + t] * x[channel * size.n + from];
  }
  y[i] = sum;
}
