// RMSNorm; a piece is a row. Four sums side by side, so that additions do not wait for each other.
#include "vector.h"

void rmsnorm(void* const* arguments, long begin, long end) {
  const float *x = arguments[0], *weight = arguments[1];
  float* y = arguments[2];
  const long columns = *(const unsigned*)arguments[3];
  const float epsilon = *(const float*)arguments[4];
  for (long row = begin; row < end; ++row) {
    const float* from = x + row * columns;
    float* to = y + row * columns;
    vec squares[4] = {{0}};
    for (long column = 0; column < columns; column += 4 * WIDTH)
      for (int part = 0; part < 4; ++part) {
        const vec value = load(from + column + part * WIDTH);
        squares[part] += value * value;
      }
    const float total = sum_of((squares[0] + squares[1]) + (squares[2] + squares[3]));
    const float scale = 1.0f / __builtin_sqrtf(total / columns + epsilon);
    for (long column = 0; column < columns; column += WIDTH)
      store(to + column, load(from + column) * scale * load(weight + column));
  }
}
