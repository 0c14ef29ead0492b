// C = A B, row-major: eight rows by 32 columns of C at a time stay in registers.
#pragma once
#include "vector.h"

#define ROWS 8

// Rows 8 * begin to 8 * end of C. n is a multiple of 32.
static inline void multiply(const float* a, const float* b, float* c, long n, long k, long begin,
                            long end) {
  for (long column = 0; column < n; column += 2 * WIDTH)
    for (long row = begin * ROWS; row < end * ROWS; row += ROWS) {
      vec sums[ROWS][2] = {{{0}}};
      for (long step = 0; step < k; ++step) {
        const float* b_row = b + step * n + column;
        const vec left = load(b_row), right = load(b_row + WIDTH);
#pragma clang loop unroll(full)
        for (int i = 0; i < ROWS; ++i) {
          const float factor = a[(row + i) * k + step];
          sums[i][0] += factor * left;
          sums[i][1] += factor * right;
        }
      }
#pragma clang loop unroll(full)
      for (int i = 0; i < ROWS; ++i) {
        store(c + (row + i) * n + column, sums[i][0]);
        store(c + (row + i) * n + column + WIDTH, sums[i][1]);
      }
    }
}
