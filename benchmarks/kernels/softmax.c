// Softmax; a piece is a row.
#include "vector.h"

void softmax(void* const* arguments, long begin, long end) {
  const float* x = arguments[0];
  float* y = arguments[1];
  const long columns = *(const unsigned*)arguments[2];
  for (long row = begin; row < end; ++row) {
    const float* from = x + row * columns;
    float* to = y + row * columns;
    vec largest = load(from), sum = {0};
    for (long column = WIDTH; column < columns; column += WIDTH)
      largest = maximum(largest, load(from + column));
    const float highest = maximum_of(largest);
    for (long column = 0; column < columns; column += WIDTH) {
      const vec value = exponential(load(from + column) - highest);
      sum += value;
      store(to + column, value);
    }
    const float scale = 1.0f / sum_of(sum);
    for (long column = 0; column < columns; column += WIDTH)
      store(to + column, load(to + column) * scale);
  }
}
