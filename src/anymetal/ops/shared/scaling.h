// Scalars of a step that may live on the device: a learning rate, and what a gradient scaler knows.
#pragma once
#include "shared/types.h"

struct Scaling {
  float lr;
  uint has_lr;     // the rate is in the buffer instead
  uint has_scale;  // gradients are divided by it
  uint has_found;  // a gradient that is not finite was found, where it is not 0: no step
};

// Buffers 27 to 29; a place that none is in is given any other.
#define SCALING_BUFFERS                                                                 \
  device const float *lr [[buffer(27)]], device const float *grad_scale [[buffer(28)]], \
      device const float *found_inf [[buffer(29)]]

#define RATE(scaling) ((scaling).has_lr ? lr[0] : (scaling).lr)
#define INVERSE_SCALE(scaling) ((scaling).has_scale ? 1.0f / grad_scale[0] : 1.0f)
#define LEFT_OUT(scaling) ((scaling).has_found && found_inf[0] != 0.0f)
