// SiLU over a flat array; a piece is one vector.
#include "vector.h"

void silu(void* const* arguments, long begin, long end) {
  const float* x = arguments[0];
  float* y = arguments[1];
  for (long i = begin * WIDTH; i < end * WIDTH; i += WIDTH) {
    const vec value = load(x + i);
    store(y + i, value / (1.0f + exponential(-value)));
  }
}
