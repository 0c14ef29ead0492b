#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

// Sizes of a (rows x inner), b (inner x columns) and c; multiples of 16.
struct Shape {
  uint rows;
  uint columns;
  uint inner;
};

// Each simdgroup holds a 16 x 16 tile of c in four 8 x 8 matrices spread over its 32 lanes.
kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* c [[buffer(2)]], constant Shape& shape [[buffer(3)]],
                   uint2 tile [[threadgroup_position_in_grid]]) {
  simdgroup_float8x8 sums[2][2];
  for (uint i = 0; i < 2; ++i)
    for (uint j = 0; j < 2; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  a += tile.y * 16 * shape.inner;
  b += tile.x * 16;
  c += tile.y * 16 * shape.columns + tile.x * 16;
  for (uint k = 0; k < shape.inner; k += 8) {
    simdgroup_float8x8 left[2], right[2];
    for (uint i = 0; i < 2; ++i) {
      simdgroup_load(left[i], a + i * 8 * shape.inner + k, shape.inner);
      simdgroup_load(right[i], b + k * shape.columns + i * 8, shape.columns);
    }
    for (uint i = 0; i < 2; ++i)
      for (uint j = 0; j < 2; ++j)
        simdgroup_multiply_accumulate(sums[i][j], left[i], right[j], sums[i][j]);
  }
  for (uint i = 0; i < 2; ++i)
    for (uint j = 0; j < 2; ++j)
      simdgroup_store(sums[i][j], c + i * 8 * shape.columns + j * 8, shape.columns);
}
