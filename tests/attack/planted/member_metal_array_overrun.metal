// expect: out_of_bounds error line 14
// launch: k float32[64]=zeros int32[1]=4 threads=64
#include <metal_stdlib>
using namespace metal;

struct Row {
  array<float, 4> values;
  float sum;
};

kernel void k(device float* x, constant int& last, uint i [[thread_position_in_grid]]) {
  Row row = {};
  for (int j = 0; j <= last; ++j) {
    row.values[j] = i;
  }
  x[i] = row.sum;
}
