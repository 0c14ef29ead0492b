// Functions as exact as a result of type T can show. Apple's GPUs, and NVIDIA's, have fast forms of
// them in hardware; their errors are below what rounding to 16 bits leaves.
#pragma once
#include "shared/types.h"

template <typename T>
struct Precision {
  template <typename V>
  static V exponential(V x) {
    return fast::exp(x);
  }
  template <typename V>
  static V quotient(V a, V b) {
    return fast::divide(a, b);
  }
};

template <>
struct Precision<float> {
  template <typename V>
  static V exponential(V x) {
    return exp(x);
  }
  template <typename V>
  static V quotient(V a, V b) {
    return a / b;
  }
};
