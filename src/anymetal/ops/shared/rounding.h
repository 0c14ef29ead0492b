// How a float32 result is stored as a shorter type: to the nearest, or at random to one of the two
// neighbours so that the expected value is the result. Small updates are then not lost.
#pragma once
#include "shared/philox.h"

struct Rounding {
  uint stochastic;  // 0: to the nearest
  uint call;        // which step
  uint2 seed;
};

// The element `i` of the tensor `tensor` of a step: the same random number in every run.
template <typename T>
inline T rounded(float value, thread const Rounding&, uint, uint) {
  return T(value);
}

template <>
inline bfloat rounded<bfloat>(float value, thread const Rounding& rounding, uint tensor, uint i) {
  if (!rounding.stochastic || !isfinite(value)) return bfloat(value);
  const uint random = philox(uint4(i, tensor, rounding.call, 0), rounding.seed).x;
  // A bfloat is the upper half of a float: what is added carries over as often as the lower half
  // is large.
  const uint bits = as_type<uint>(value) + (random & 0xFFFFu);
  return bfloat(as_type<float>(bits & 0xFFFF0000u));
}
