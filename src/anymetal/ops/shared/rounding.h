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

// The same for one element or four neighbouring ones.
template <typename T>
inline void store_rounded(device T* to, float value, thread const Rounding& rounding, uint tensor,
                          uint i) {
  *to = rounded<T>(value, rounding, tensor, i);
}

template <typename T>
inline void store_rounded(device T* to, float4 value, thread const Rounding& rounding, uint tensor,
                          uint i) {
  vec<T, 4> all;
#pragma unroll
  for (uint j = 0; j < 4; ++j) all[j] = rounded<T>(value[j], rounding, tensor, i + j);
  *reinterpret_cast<device vec<T, 4>*>(to) = all;
}
