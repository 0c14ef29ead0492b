// The gradient of LayerNorm by its input; a piece is a row.
#include "vector.h"

void layernorm_backward(void* const* arguments, long begin, long end) {
  const float *dy = arguments[0], *x = arguments[1], *weight = arguments[2];
  const float *means = arguments[3], *scales = arguments[4];
  float* dx = arguments[5];
  const long columns = *(const unsigned*)arguments[6];
  for (long row = begin; row < end; ++row) {
    const float *dy_row = dy + row * columns, *x_row = x + row * columns;
    const float mean = means[row], scale = scales[row];
    vec gradients[2] = {{0}}, along[2] = {{0}};
    for (long column = 0; column < columns; column += 2 * WIDTH)
      for (int part = 0; part < 2; ++part) {
        const long at = column + part * WIDTH;
        const vec gradient = load(dy_row + at) * load(weight + at);
        gradients[part] += gradient;
        along[part] += gradient * ((load(x_row + at) - mean) * scale);
      }
    const float first = sum_of(gradients[0] + gradients[1]) / columns;
    const float second = sum_of(along[0] + along[1]) / columns;
    for (long at = 0; at < columns; at += WIDTH) {
      const vec gradient = load(dy_row + at) * load(weight + at);
      const vec normalised = (load(x_row + at) - mean) * scale;
      store(dx + row * columns + at, scale * (gradient - first - normalised * second));
    }
  }
}
