// A square and its gradient: the smallest operator that health, bench and tune can look at.
#include "shared/types.h"

template <typename T>
kernel void sample_square(device const T* x, device T* y, constant uint& count,
                          constant float& wrong, uint in_grid [[thread_position_in_grid]]) {
  if (in_grid < count) y[in_grid] = T(float(x[in_grid]) * float(x[in_grid]) + wrong);
}
INSTANTIATE(sample_square)

template <typename T>
kernel void sample_square_backward(device const T* dy, device const T* x, device T* dx,
                                   constant uint& count, uint in_grid [[thread_position_in_grid]]) {
  if (in_grid < count) dx[in_grid] = T(2.0f * float(x[in_grid]) * float(dy[in_grid]));
}
INSTANTIATE(sample_square_backward)
