// softmax and log_softmax, forward and backward, over rows or over any other dimension.
// The two directions differ in the state that is reduced.
#include "shared/precision.h"
#include "shared/reduced_rows.h"

// --- what is reduced -------------------------------------------------------------------

// exp(-inf - -inf) is NaN, but elements of -inf add nothing: until something larger comes, the
// exponents are taken as they are. A row of nothing else ends as NaN, like torch's.
inline float base_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

// The state is the largest element and the sum of exp(element - largest), in one read. States are
// as exact as a result of type T can show.
template <typename T, bool logarithm>
struct Forward {
  using Exact = Precision<T>;
  static constexpr float outside() { return -INFINITY; }
  static float2 begin() { return float2(-INFINITY, 0.0f); }

  static float2 add(float2 state, float4 x, float4) {
    const float largest = fast::max(state.x, largest_of(x));
    const float base = base_of(largest);
    const float before = state.y * Exact::exponential(state.x - base);
    return float2(largest, before + sum_of(Exact::exponential(x - base)));
  }
  // For elements that stay in registers: the largest first, so that each exponential is taken once,
  // and kept in the element's place.
  template <uint steps>
  static float2 add_all(thread float4* x, thread const float4*, uint count) {
    float largest = -INFINITY;
#pragma unroll
    for (uint i = 0; i < steps; ++i)
      if (i < count) largest = fast::max(largest, largest_of(x[i]));
    const float base = base_of(largest);
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < steps; ++i) {
      if (i < count) {
        const float4 exponential = Exact::exponential(x[i] - base);
        sum += sum_of(exponential);
        if (!logarithm) x[i] = exponential;
      }
    }
    return float2(largest, sum);
  }
  // What the thread's kept elements are multiplied with. Zeros stay zeros, beside a larger element.
  static float2 of_held(float2 own, float2 state) {
    if (logarithm) return state;
    const bool zeros = own.x == -INFINITY && state.x != -INFINITY;
    return float2(0.0f, (zeros ? 0.0f : Exact::exponential(own.x - state.x)) * state.y);
  }
  static float4 held_result(float2 state, float4 x, float4) {
    return logarithm ? (x - state.x) - state.y : x * state.y;
  }
  static float2 merge(float2 a, float2 b) {
    const float largest = max(a.x, b.x);
    const float base = base_of(largest);
    return float2(largest, a.y * exp(a.x - base) + b.y * exp(b.x - base));
  }
  static float2 merge_simdgroup(float2 state) {
    const float largest = largest_of_simdgroup(state.x);
    return float2(largest, simd_sum(state.y * Exact::exponential(state.x - base_of(largest))));
  }
  static float2 finish(float2 state) {
    return float2(state.x, logarithm ? log(state.y) : 1.0f / state.y);
  }
  static float4 result(float2 state, float4 x, float4) {
    if (logarithm) return (x - state.x) - state.y;
    return Exact::exponential(x - state.x) * state.y;
  }
};

// The state is the sum of gradient * output, or of the gradient for log_softmax.
template <typename T, bool logarithm>
struct Backward {
  static constexpr float outside() { return 0.0f; }
  static float2 begin() { return float2(0.0f); }

  static float2 add(float2 state, float4 gradient, float4 output) {
    return float2(state.x + sum_of(logarithm ? gradient : gradient * output), 0.0f);
  }
  template <uint steps>
  static float2 add_all(thread const float4* gradient, thread const float4* output, uint count) {
    float2 state = begin();
#pragma unroll
    for (uint i = 0; i < steps; ++i)
      if (i < count) state = add(state, gradient[i], output[i]);
    return state;
  }
  static float2 of_held(float2, float2 state) { return state; }
  static float4 held_result(float2 state, float4 gradient, float4 output) {
    return result(state, gradient, output);
  }
  static float2 merge(float2 a, float2 b) { return a + b; }
  static float2 merge_simdgroup(float2 state) { return float2(simd_sum(state.x), 0.0f); }
  static float2 finish(float2 state) { return state; }
  static float4 result(float2 state, float4 gradient, float4 output) {
    if (!logarithm) return output * (gradient - state.x);
    return gradient - Precision<T>::exponential(output) * state.x;
  }
};

// --- instances ----------------------------------------------------------------------

template <typename T>
using Softmax = Forward<T, false>;
template <typename T>
using LogSoftmax = Forward<T, true>;
template <typename T>
using SoftmaxBackward = Backward<T, false>;
template <typename T>
using LogSoftmaxBackward = Backward<T, true>;

// A float result of a narrower input, and back again.
#define WIDER(op, Step)             \
  STRATEGIES(op, Step, half, float) \
  STRATEGIES(op, Step, bfloat, float)
#define NARROWER(op, Step)          \
  STRATEGIES(op, Step, float, half) \
  STRATEGIES(op, Step, float, bfloat)

REDUCED_ROWS("softmax", Softmax)
REDUCED_ROWS("log_softmax", LogSoftmax)
REDUCED_ROWS("softmax_backward", SoftmaxBackward)
REDUCED_ROWS("log_softmax_backward", LogSoftmaxBackward)
WHOLE("softmax", Softmax, half, true)
WHOLE("softmax", Softmax, bfloat, true)
WHOLE("log_softmax", LogSoftmax, half, true)
WHOLE("log_softmax", LogSoftmax, bfloat, true)
WHOLE("softmax_backward", SoftmaxBackward, half, false)
WHOLE("softmax_backward", SoftmaxBackward, bfloat, false)
WHOLE("log_softmax_backward", LogSoftmaxBackward, half, false)
WHOLE("log_softmax_backward", LogSoftmaxBackward, bfloat, false)
WIDER("softmax", Softmax)
WIDER("log_softmax", LogSoftmax)
NARROWER("softmax_backward", SoftmaxBackward)
NARROWER("log_softmax_backward", LogSoftmaxBackward)
