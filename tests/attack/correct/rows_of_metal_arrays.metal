// expect: nothing
// launch: k float32[64]=random threads=64
#include <metal_stdlib>
using namespace metal;

struct Row {
  array<float, 4> values;
  float sum;
};

kernel void k(device float* x, uint i [[thread_position_in_grid]]) {
  array<Row, 3> rows = {};
  for (uint j = 0; j < 12; ++j) rows[j / 4].values[j % 4] = x[i] * j;
  for (thread Row& row : rows)
    for (float value : row.values) row.sum += value;
  x[i] = rows[0].sum + rows[1].sum + rows[2].sum;
}
