// LayerNorm; a piece is a row.
#include "vector.h"

void layernorm(void* const* arguments, long begin, long end) {
  const float *x = arguments[0], *weight = arguments[1], *bias = arguments[2];
  float* y = arguments[3];
  const long columns = *(const unsigned*)arguments[4];
  const float epsilon = *(const float*)arguments[5];
  for (long row = begin; row < end; ++row) {
    const float* from = x + row * columns;
    float* to = y + row * columns;
    vec sums[2] = {{0}}, squares[2] = {{0}};
    for (long column = 0; column < columns; column += 2 * WIDTH)
      for (int part = 0; part < 2; ++part) sums[part] += load(from + column + part * WIDTH);
    const float mean = sum_of(sums[0] + sums[1]) / columns;
    for (long column = 0; column < columns; column += 2 * WIDTH)
      for (int part = 0; part < 2; ++part) {
        const vec centred = load(from + column + part * WIDTH) - mean;
        squares[part] += centred * centred;
      }
    const float variance = sum_of(squares[0] + squares[1]) / columns;
    const float scale = 1.0f / __builtin_sqrtf(variance + epsilon);
    for (long column = 0; column < columns; column += WIDTH) {
      const vec normalised = (load(from + column) - mean) * scale;
      store(to + column, normalised * load(weight + column) + load(bias + column));
    }
  }
}
