// Kernels whose counts are known; tests name their lines by the words at the end.
#include <metal_stdlib>
using namespace metal;

kernel void tiled(device const float* x, device float* y, uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup float tile[64];
  tile[t] = x[i];                                   // load
  threadgroup_barrier(mem_flags::mem_threadgroup);  // wait
  y[i] = fma(tile[n - 1 - t], 2.0f, 1.0f);          // store
}

kernel void strided(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[16 * i];  // strided
}

kernel void transposed(device const float* x, device float* y, constant uint& pitch,
                       uint t [[thread_index_in_threadgroup]]) {
  threadgroup float tile[33 * 32];
  uint row = t / 32, column = t % 32;
  tile[row * pitch + column] = x[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = tile[column * pitch + row];  // column
}

kernel void branches(device const float* x, device float* y, constant int& limit,
                     uint i [[thread_position_in_grid]]) {
  float value = x[i];
  if (i % 2 == 0) {
    for (int k = 0; k < limit; ++k)
      value = value * 1.5f + float(i);  // even
  }
  if (limit > 500)   // taken
    y[i] = exp(value);  // never
  else
    y[i] = value;
}

kernel void spread(device const float* x, device float* y, constant uint& columns,
                   uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float sum = 0, squares = 0;
  for (uint i = lane; i < columns; i += 32)
    sum += x[row * columns + i];
  float mean = simd_sum(sum) / columns;
  for (uint i = lane; i < columns; i += 32) {
    float d = x[row * columns + i] - mean;  // again
    squares += d * d;
  }
  squares = simd_sum(squares);
  if (lane == 0)
    y[row] = squares / columns;
}

kernel void means(device const float* x, device float* y, constant uint& columns,
                  uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float sum = 0;
  for (uint i = lane; i < columns; i += 32)
    sum += x[row * columns + i];
  sum = simd_sum(sum);
  y[row] = sum / columns;
}

kernel void histogram(device const int* x, device atomic_int* count,
                      uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(count + x[i], 1, memory_order_relaxed);  // atomic
}

kernel void private_array(device const float* x, device float* y, device const int* order,
                          uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float room[8000];
  float kept[8];
  for (int k = 0; k < 8; ++k)
    kept[k] = 0;
  for (int k = 0; k < 8; ++k)
    kept[order[(i + k) % 64]] += x[(i + k) % 64];
  room[t] = kept[order[i]];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = room[63 - t];
}
