// softmax and log_softmax, forward and backward, over rows or over any other dimension.
// The two directions differ in the state that is reduced.
#include "shared/reduced_rows.h"

// --- what is reduced -------------------------------------------------------------------

// exp(-inf - -inf) is NaN, but elements of -inf add nothing: until something larger comes, the
// exponents are taken as they are. A row of nothing else ends as NaN, like torch's.
inline float base_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

// The state is the largest element and the sum of exp(element - largest), in one read.
template <bool logarithm>
struct Forward {
  static constexpr float outside() { return -INFINITY; }
  static float2 begin() { return float2(-INFINITY, 0.0f); }

  static float2 add(float2 state, float4 x, float4) {
    const float largest = max(state.x, largest_of(x));
    const float base = base_of(largest);
    return float2(largest, state.y * exp(state.x - base) + sum_of(exp(x - base)));
  }
  // For elements that stay in registers: the largest first, so that each is scaled once.
  static float2 add_all(thread const float4* x, thread const float4*, uint steps) {
    float largest = -INFINITY;
    for (uint i = 0; i < steps; ++i) largest = max(largest, largest_of(x[i]));
    const float base = base_of(largest);
    float sum = 0.0f;
    for (uint i = 0; i < steps; ++i) sum += sum_of(exp(x[i] - base));
    return float2(largest, sum);
  }
  static float2 merge(float2 a, float2 b) {
    const float largest = max(a.x, b.x);
    const float base = base_of(largest);
    return float2(largest, a.y * exp(a.x - base) + b.y * exp(b.x - base));
  }
  static float2 merge_simdgroup(float2 state) {
    const float largest = simd_max(state.x);
    return float2(largest, simd_sum(state.y * exp(state.x - base_of(largest))));
  }
  static float2 finish(float2 state) { return logarithm ? float2(state.x, log(state.y)) : state; }
  static float4 result(float2 state, float4 x, float4) {
    return logarithm ? (x - state.x) - state.y : exp(x - state.x) / state.y;
  }
};

// The state is the sum of gradient * output, or of the gradient for log_softmax.
template <bool logarithm>
struct Backward {
  static constexpr float outside() { return 0.0f; }
  static float2 begin() { return float2(0.0f); }

  static float2 add(float2 state, float4 gradient, float4 output) {
    return float2(state.x + sum_of(logarithm ? gradient : gradient * output), 0.0f);
  }
  static float2 add_all(thread const float4* gradient, thread const float4* output, uint steps) {
    float2 state = begin();
    for (uint i = 0; i < steps; ++i) state = add(state, gradient[i], output[i]);
    return state;
  }
  static float2 merge(float2 a, float2 b) { return a + b; }
  static float2 merge_simdgroup(float2 state) { return float2(simd_sum(state.x), 0.0f); }
  static float2 finish(float2 state) { return state; }
  static float4 result(float2 state, float4 gradient, float4 output) {
    return logarithm ? gradient - exp(output) * state.x : output * (gradient - state.x);
  }
};

// --- instances ----------------------------------------------------------------------

// A float result of a narrower input, and back again.
#define WIDER(op, Step)             \
  STRATEGIES(op, Step, half, float) \
  STRATEGIES(op, Step, bfloat, float)
#define NARROWER(op, Step)          \
  STRATEGIES(op, Step, float, half) \
  STRATEGIES(op, Step, float, bfloat)

REDUCED_ROWS("softmax", Forward<false>)
REDUCED_ROWS("log_softmax", Forward<true>)
REDUCED_ROWS("softmax_backward", Backward<false>)
REDUCED_ROWS("log_softmax_backward", Backward<true>)
WIDER("softmax", Forward<false>)
WIDER("log_softmax", Forward<true>)
NARROWER("softmax_backward", Backward<false>)
NARROWER("log_softmax_backward", Backward<true>)
