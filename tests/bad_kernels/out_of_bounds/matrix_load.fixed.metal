// matrix_load, corrected in the launch: the buffer is padded to eight rows.
// expect: nothing
// launch: double_matrix float32[8,8]=random float32[8,8]=zeros threads=32 group_size=32
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

kernel void double_matrix(device const float* x, device float* y) {
  simdgroup_float8x8 value;
  simdgroup_load(value, x, 8);
  simdgroup_float8x8 two = simdgroup_float8x8(2.0f);
  simdgroup_float8x8 result;
  simdgroup_multiply(result, value, two);
  simdgroup_store(result, y, 8);
}
