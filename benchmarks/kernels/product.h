// C = A B, row-major: eight rows by 32 columns of C at a time stay in registers.
#pragma once
#include "vector.h"

#define ROWS 8
#define COLUMNS (2 * WIDTH)
#define DEPTH 1024

// 32 columns of B one below the other: rows of B that are a power of two apart share cache sets.
static inline void gather_columns(const float* b, long n, long steps, float* panel) {
  for (long step = 0; step < steps; ++step)
    for (int part = 0; part < 2; ++part)
      store(panel + step * COLUMNS + part * WIDTH, load(b + step * n + part * WIDTH));
}

static inline void multiply_tile(const float* a, long k, const float* panel, long steps, float* c,
                                 long n, int first) {
  vec sums[ROWS][2];
#pragma clang loop unroll(full)
  for (int i = 0; i < ROWS; ++i)
    for (int part = 0; part < 2; ++part)
      sums[i][part] = first ? splat(0.0f) : load(c + i * n + part * WIDTH);
  for (long step = 0; step < steps; ++step) {
    const vec left = load(panel + step * COLUMNS), right = load(panel + step * COLUMNS + WIDTH);
#pragma clang loop unroll(full)
    for (int i = 0; i < ROWS; ++i) {
      const float factor = a[i * k + step];
      sums[i][0] += factor * left;
      sums[i][1] += factor * right;
    }
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < ROWS; ++i)
    for (int part = 0; part < 2; ++part) store(c + i * n + part * WIDTH, sums[i][part]);
}

// Rows 8 * begin to 8 * end of C. n is a multiple of 32.
static inline void multiply(const float* a, const float* b, float* c, long n, long k, long begin,
                            long end) {
  static _Thread_local float panel[DEPTH * COLUMNS];
  for (long start = 0; start < k; start += DEPTH) {
    const long steps = k - start < DEPTH ? k - start : DEPTH;
    for (long column = 0; column < n; column += COLUMNS) {
      gather_columns(b + start * n + column, n, steps, panel);
      for (long row = begin * ROWS; row < end * ROWS; row += ROWS)
        multiply_tile(a + row * k + start, k, panel, steps, c + row * n + column, n, start == 0);
    }
  }
}
