// Functions of one value and their derivatives, written for float and float4 alike. A NaN stays a
// NaN.
#pragma once
#include "shared/normal.h"

template <typename V>
inline V logistic(V x) {
  return 1.0f / (1.0f + exp(-x));
}

// The logistic function and its derivative, s and s (1 - s), without the rounding of 1 - s.
template <typename V>
struct Logistic {
  V value;
  V slope;
  explicit Logistic(V x) {
    const V e = exp(-abs(x));
    const V larger = 1.0f / (1.0f + e);
    value = select(e * larger, larger, x > 0.0f);
    slope = e * larger * larger;
  }
};

struct Silu {
  template <typename V>
  static V of(V x) {
    return x / (1.0f + exp(-x));
  }
  template <typename V>
  static V slope(V x) {
    const Logistic<V> s(x);
    return s.value + x * s.slope;
  }
};

struct GeluNone {
  template <typename V>
  static V of(V x) {
    return x * normal(x).distribution;
  }
  template <typename V>
  static V slope(V x) {
    const Normal<V> n = normal(x);
    return n.distribution + x * n.density;
  }
};

// (1 + tanh(u)) / 2 is the logistic function of 2 u, which keeps its digits below zero.
struct GeluTanh {
  static constexpr constant float scale = 1.5957691216f;  // 2 sqrt(2 / pi)
  static constexpr constant float cubic = 0.044715f;

  template <typename V>
  static V of(V x) {
    return x / (1.0f + exp(-scale * (x + cubic * x * x * x)));
  }
  template <typename V>
  static V slope(V x) {
    const Logistic<V> s(scale * (x + cubic * x * x * x));
    const V near = clamp(x, -40.0f, 40.0f);  // beyond, the slope is 0 and must stay it
    return s.value + near * s.slope * scale * (1.0f + 3.0f * cubic * near * near);
  }
};

struct Relu {
  template <typename V>
  static V of(V x) {
    return select(x, V(0.0f), x <= 0.0f);
  }
  template <typename V>
  static V slope(V x) {
    return select(V(1.0f), V(0.0f), x <= 0.0f);
  }
};

struct ReluSquared {
  template <typename V>
  static V of(V x) {
    return select(x * x, V(0.0f), x <= 0.0f);
  }
  template <typename V>
  static V slope(V x) {
    return select(2.0f * x, V(0.0f), x <= 0.0f);
  }
};

struct Sigmoid {
  template <typename V>
  static V of(V x) {
    return logistic(x);
  }
};

// --- chosen by a call ----------------------------------------------------------------------------

enum class Activation : uint { none, relu, silu, gelu, gelu_tanh };

// The same function for all threads: the branches do not diverge, and no loop over k has them.
inline float activated(Activation function, float x) {
  switch (function) {
    case Activation::relu:
      return Relu::of(x);
    case Activation::silu:
      return Silu::of(x);
    case Activation::gelu:
      return GeluNone::of(x);
    case Activation::gelu_tanh:
      return GeluTanh::of(x);
    default:
      return x;
  }
}

inline float slope_at(Activation function, float x) {
  switch (function) {
    case Activation::relu:
      return Relu::slope(x);
    case Activation::silu:
      return Silu::slope(x);
    case Activation::gelu:
      return GeluNone::slope(x);
    case Activation::gelu_tanh:
      return GeluTanh::slope(x);
    default:
      return 1.0f;
  }
}
