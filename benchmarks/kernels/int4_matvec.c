// y = W x for 4-bit weights; a piece is a row. Four words hold the 32 weights of one scale.
#include "vector.h"

typedef int words __attribute__((vector_size(16), aligned(4), may_alias));

void int4_matvec(void* const* arguments, long begin, long end) {
  const int* weights = arguments[0];
  const float *scales = arguments[1], *x = arguments[2];
  float* y = arguments[3];
  const long columns = *(const unsigned*)arguments[4];
  const ivec shifts = {0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
  for (long row = begin; row < end; ++row) {
    const int* from = weights + row * (columns / 8);
    const float* scale = scales + row * (columns / 32);
    vec sums[2] = {{0}};
    for (long group = 0; group < columns / 32; ++group) {
      const words four = *(const words*)(from + group * 4);
      const ivec low =
          __builtin_shufflevector(four, four, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
      const ivec high =
          __builtin_shufflevector(four, four, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
      const vec first = __builtin_convertvector(((low >> shifts) & 15) - 8, vec);
      const vec second = __builtin_convertvector(((high >> shifts) & 15) - 8, vec);
      const vec dot = first * load(x + group * 32) + second * load(x + group * 32 + WIDTH);
      sums[group % 2] += dot * scale[group];
    }
    y[row] = sum_of(sums[0] + sums[1]);
  }
}
