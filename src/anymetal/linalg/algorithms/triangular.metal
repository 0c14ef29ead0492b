// T X = B for a triangular T of at most 32 rows, or a diagonal block of a larger one.
#include "shared/matrices.h"

struct Solve {
  long rows;
  long columns;  // of B
  long upper;
  long unit;  // the diagonal is 1 and not read
  Strides t;
  Strides b;
  Strides x;
};

// A simdgroup solves for 32 columns, a lane for one. X may be B. An upper triangle is a lower one
// with its rows and columns in reverse.
[[kernel]] void solve_block(device const float* t [[buffer(0)]],
                            device const float* b [[buffer(1)]], device float* x [[buffer(2)]],
                            constant Solve& solve [[buffer(3)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[lanes * lanes];
  threadgroup float solved[lanes * lanes];
  const uint rows = uint(solve.rows);
  const uint column = group.x * lanes + lane;
  const bool inside = column < solve.columns;
  const uint last = rows - 1;
  const bool upper = solve.upper != 0;

  for (uint i = 0; i < rows; ++i) {
    const uint row = upper ? last - i : i;
    const uint other = upper ? last - min(lane, last) : min(lane, last);
    const bool wanted = lane < i || (lane == i && solve.unit == 0);
    tile[i * lanes + lane] = wanted ? t[solve.t.at(group.y, row, other)] : 1.0f;
    solved[i * lanes + lane] = inside ? b[solve.b.at(group.y, row, column)] : 0.0f;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);

  for (uint i = 0; i < rows; ++i) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    uint j = 0;
    for (; j + 4 <= i; j += 4)
#pragma unroll
      for (uint k = 0; k < 4; ++k)
        sums[k] += tile[i * lanes + j + k] * solved[(j + k) * lanes + lane];
    for (; j < i; ++j) sums[0] += tile[i * lanes + j] * solved[j * lanes + lane];
    const float rest = solved[i * lanes + lane] - ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    const float value = rest / tile[i * lanes + i];
    solved[i * lanes + lane] = value;
    // anymetal: allow(aliasing) a lane has read its column before it writes it
    if (inside) x[solve.x.at(group.y, upper ? last - i : i, column)] = value;
  }
}
