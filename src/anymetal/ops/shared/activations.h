// Functions of one value and their derivatives, written for float and float4 alike, as exact as a
// result of type T can show. A NaN stays a NaN.
#pragma once
#include "shared/normal.h"

template <typename T, typename V>
inline V logistic(V x) {
  return Precision<T>::quotient(V(1.0f), 1.0f + Precision<T>::exponential(-x));
}

// The logistic function and its derivative, s and s (1 - s), without the rounding of 1 - s.
template <typename T, typename V>
struct Logistic {
  V value;
  V slope;
  explicit Logistic(V x) {
    const V e = Precision<T>::exponential(-abs(x));
    const V larger = Precision<T>::quotient(V(1.0f), 1.0f + e);
    value = select(e * larger, larger, x > 0.0f);
    slope = e * larger * larger;
  }
};

struct Silu {
  template <typename T, typename V>
  static V of(V x) {
    return Precision<T>::quotient(x, 1.0f + Precision<T>::exponential(-x));
  }
  template <typename T, typename V>
  static V slope(V x) {
    const Logistic<T, V> s(x);
    return s.value + x * s.slope;
  }
};

struct GeluNone {
  template <typename T, typename V>
  static V of(V x) {
    return x * normal<T>(x).distribution;
  }
  template <typename T, typename V>
  static V slope(V x) {
    const Normal<V> n = normal<T>(x);
    return n.distribution + x * n.density;
  }
};

// (1 + tanh(u)) / 2 is the logistic function of 2 u, which keeps its digits below zero.
struct GeluTanh {
  static constexpr constant float scale = 1.5957691216f;  // 2 sqrt(2 / pi)
  static constexpr constant float cubic = 0.044715f;

  template <typename T, typename V>
  static V of(V x) {
    const V e = Precision<T>::exponential(-scale * (x + cubic * x * x * x));
    return Precision<T>::quotient(x, 1.0f + e);
  }
  template <typename T, typename V>
  static V slope(V x) {
    const Logistic<T, V> s(scale * (x + cubic * x * x * x));
    const V near = clamp(x, -40.0f, 40.0f);  // beyond, the slope is 0 and must stay it
    return s.value + near * s.slope * scale * (1.0f + 3.0f * cubic * near * near);
  }
};

struct Relu {
  template <typename T, typename V>
  static V of(V x) {
    return select(x, V(0.0f), x <= 0.0f);
  }
  template <typename T, typename V>
  static V slope(V x) {
    return select(V(1.0f), V(0.0f), x <= 0.0f);
  }
};

struct ReluSquared {
  template <typename T, typename V>
  static V of(V x) {
    return select(x * x, V(0.0f), x <= 0.0f);
  }
  template <typename T, typename V>
  static V slope(V x) {
    return select(2.0f * x, V(0.0f), x <= 0.0f);
  }
};

struct Sigmoid {
  template <typename T, typename V>
  static V of(V x) {
    return logistic<T>(x);
  }
};

// --- chosen by a call ----------------------------------------------------------------------------

enum class Activation : uint { none, relu, silu, gelu, gelu_tanh };

// The same function for all threads: the branches do not diverge, and no loop over k has them.
template <typename V>
inline V activated(Activation function, V x) {
  switch (function) {
    case Activation::relu:
      return Relu::of<float>(x);
    case Activation::silu:
      return Silu::of<float>(x);
    case Activation::gelu:
      return GeluNone::of<float>(x);
    case Activation::gelu_tanh:
      return GeluTanh::of<float>(x);
    default:
      return x;
  }
}

template <typename V>
inline V slope_at(Activation function, V x) {
  switch (function) {
    case Activation::relu:
      return Relu::slope<float>(x);
    case Activation::silu:
      return Silu::slope<float>(x);
    case Activation::gelu:
      return GeluNone::slope<float>(x);
    case Activation::gelu_tanh:
      return GeluTanh::slope<float>(x);
    default:
      return V(1.0f);
  }
}
