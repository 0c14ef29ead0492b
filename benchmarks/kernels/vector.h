// What the hand-written C shares: vectors of 16 floats or ints, their sums, and exp.
//
// Each file has one function, void NAME(void* const* arguments, long begin, long end), which does
// the pieces from `begin` to `end`; the arguments are in the order of the Metal kernel's buffers.
#pragma once

#define WIDTH 16

typedef float vec __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
typedef int ivec __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

static inline vec load(const float* p) { return *(const vec*)p; }
static inline void store(float* p, vec value) { *(vec*)p = value; }
static inline vec splat(float value) { return value - (vec){0}; }
static inline vec maximum(vec a, vec b) { return __builtin_elementwise_max(a, b); }

static inline float sum_of(vec v) {
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  return v[0] + v[1];
}

static inline float maximum_of(vec v) {
  float result = v[0];
  for (int i = 1; i < WIDTH; ++i) result = v[i] > result ? v[i] : result;
  return result;
}

// e^x for x up to 88; far below zero it is 0. x = n ln 2 + r, and a polynomial in r.
static inline vec exponential(vec x) {
#pragma clang fp reassociate(off)  // ln 2 in two parts is the point of it
  x = maximum(x, splat(-87.0f));
  const vec n = __builtin_elementwise_roundeven(x * 1.44269504f);
  const vec r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  vec y = splat(1.98756915e-4f);
  y = y * r + 1.39819995e-3f;
  y = y * r + 8.33345205e-3f;
  y = y * r + 4.16657959e-2f;
  y = y * r + 1.66666657e-1f;
  y = y * r + 0.5f;
  y = y * r * r + r + 1.0f;
  const ivec bits = (ivec)y + (__builtin_convertvector(n, ivec) << 23);
  return (vec)bits;
}
