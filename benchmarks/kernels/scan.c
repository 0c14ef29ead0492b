// Inclusive sums along rows; a piece is a row. Within a vector by doubling the distance.
#include "vector.h"

void scan(void* const* arguments, long begin, long end) {
  const float* x = arguments[0];
  float* y = arguments[1];
  const long columns = *(const unsigned*)arguments[2];
  const vec zero = {0};
  for (long row = begin; row < end; ++row) {
    float before = 0.0f;
    for (long column = 0; column < columns; column += WIDTH) {
      vec v = load(x + row * columns + column);
      v += __builtin_shufflevector(zero, v, 0, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
                                   29, 30);
      v += __builtin_shufflevector(zero, v, 0, 1, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                   28, 29);
      v += __builtin_shufflevector(zero, v, 0, 1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
                                   27);
      v += __builtin_shufflevector(zero, v, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
      store(y + row * columns + column, v + before);
      before += v[WIDTH - 1];
    }
  }
}
