// The normal distribution function, which Metal has no erf for: P(x) = (1 + erf(x / sqrt(2))) / 2.
//
// Below zero it is exp(-x^2 / 2) times a smooth function of |x|, so that the tail keeps its digits:
// at most 4e-7 relative error from -14 up, where 1 + erf has none left below -5.5.
#pragma once
#include "shared/precision.h"

template <typename V>
struct Normal {
  V density;       // exp(-x^2 / 2) / sqrt(2 pi)
  V distribution;  // P(x)
};

// exp(-x^2 / 2) with the square's rounding error put back: at x = 10 it would cost 50 ulp.
template <typename T, typename V>
inline V exp_of_half_square(V x) {
  const V square = x * x;
  const V rest = fma(x, x, -square);
  return Precision<T>::exponential(-0.5f * square) *
         (1.0f - 0.5f * select(rest, V(0.0f), isinf(square)));
}

// P(-t) * exp(t^2 / 2) for t from 0 to 14.5, a polynomial of (t - 4) / (t + 4): relative error 2e-8
// before rounding. Further out the exponential is 0.
template <typename T, typename V>
inline V scaled_tail(V t) {
  const V u = Precision<T>::quotient(t - 4.0f, t + 4.0f);
  V value = fma(V(-0x1.11d29cp-14f), u, V(-0x1.5ff47ep-13f));
  value = fma(value, u, V(0x1.58db66p-11f));
  value = fma(value, u, V(0x1.077b42p-11f));
  value = fma(value, u, V(-0x1.1675b2p-7f));
  value = fma(value, u, V(0x1.f9b34ap-6f));
  value = fma(value, u, V(-0x1.25b5f8p-4f));
  value = fma(value, u, V(0x1.fd750cp-4f));
  value = fma(value, u, V(-0x1.5cf97ep-3f));
  return fma(value, u, V(0x1.82b4bcp-4f));
}

template <typename T, typename V>
inline Normal<V> normal(V x) {
  const V exponential = exp_of_half_square<T>(x);
  const V tail = exponential * scaled_tail<T>(min(abs(x), V(14.5f)));
  return {exponential * 0.3989422804f, select(tail, 1.0f - tail, x > 0.0f)};
}
