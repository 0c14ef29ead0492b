// Cross entropy of rows of logits, and its gradient from the saved logarithm of the sum.
//
// With shares s_c of the classes (of the target and of smoothing, times the class's weight), the
// loss of a row is  sum(s) * lse - sum(s * x) + z_loss * lse^2.
#include "shared/indices.h"
#include "shared/precision.h"
#include "shared/vectors.h"

struct Entropy {
  uint classes;      // of this tensor
  uint first;        // the class of its first column
  uint all_classes;  // that smoothing is shared among
  uint inner;        // elements between two classes of one row
  uint scale_step;   // 0: one scale for all rows, 1: one each
  uint is_wide;      // the target has 64 bits
  uint has_weight;
  uint has_chances;  // the target is a share of each class
  float smoothing;
  float z_loss;
  float softcap;
  long ignored;
};

// No target of the caller: those of a call below zero are out of range.
constant constexpr long no_class = -0x7fffffffffffffff;

inline float capped(float x, float cap) { return cap > 0.0f ? cap * tanh(x / cap) : x; }

// Whether classes have shares besides that of the row's class.
inline bool is_shared(constant Entropy& numbers) {
  return numbers.smoothing > 0.0f || numbers.has_chances;
}

// The class of a row; none where it is ignored, or given by chances.
inline long class_of(device const int* target, ulong row, constant Entropy& numbers) {
  if (numbers.has_chances) return no_class;
  const long found = index_at(target, row, numbers.is_wide);
  return found == numbers.ignored ? no_class : found;
}

// The share of a class that does not depend on the class of the row.
inline float share_of(float chance, device const float* weight, uint column,
                      constant Entropy& numbers) {
  const float share = numbers.smoothing / float(numbers.all_classes);
  const float all = share + (1.0f - numbers.smoothing) * chance;
  return numbers.has_weight ? all * weight[numbers.first + column] : all;
}

template <typename T>
inline float chance_at(device const T* chances, ulong at, constant Entropy& numbers) {
  return numbers.has_chances ? float(chances[at]) : 0.0f;
}

// --- forward ---------------------------------------------------------------------------

// The state of elements: the largest, sum(exp(x - largest)), sum(share), sum(share * x).
inline float base_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

inline float4 merged_simdgroup(float4 state) {
  const float largest = simd_max(state.x);
  const float sum = simd_sum(state.y * exp(state.x - base_of(largest)));
  return float4(largest, sum, simd_sum(state.z), simd_sum(state.w));
}

inline float4 nothing() { return float4(-INFINITY, 0.0f, 0.0f, 0.0f); }

// A thread's part of a row, one class at a time or (with `eight`) eight neighbouring ones.
template <typename T, bool eight>
struct Part {
  device const T* x;
  uint begin;  // the first class of this thread
  uint step;   // classes of all threads
  uint end;
  float softcap;  // not for eight: a hyperbolic tangent takes registers that loads need

  // Of the largest element and the sum of exp(element - largest), what they are with more elements.
  template <uint count>
  static float2 with(float2 seen, thread const float4* logits) {
    using Exact = Precision<T>;
    float largest = seen.x;
#pragma unroll
    for (uint i = 0; i < count; ++i) largest = fast::max(largest, largest_of(logits[i]));
    const float base = base_of(largest);
    float4 sums = float4(0.0f);
#pragma unroll
    for (uint i = 0; i < count; ++i) sums += Exact::exponential(logits[i] - base);
    return float2(largest, seen.y * Exact::exponential(seen.x - base) + sum_of(sums));
  }

  template <uint count>
  float2 with_eights(float2 seen, uint at) const thread {
    float4 logits[2 * count];
#pragma unroll
    for (uint i = 0; i < count; ++i) Access<8>::load(logits + 2 * i, x + at + i * step);
    return with<2 * count>(seen, logits);
  }

  float2 read() const thread {
    float2 seen = float2(-INFINITY, 0.0f);
    uint at = begin;
    if constexpr (!eight) {
      for (; at < end; at += 4 * step) {
        float4 logits = float4(-INFINITY);
        for (uint j = 0; j < 4; ++j)
          if (at + j * step < end) logits[j] = capped(float(x[at + j * step]), softcap);
        seen = with<1>(seen, &logits);
      }
      return seen;
    }
    constexpr uint loads = 4;  // on their way at once
    for (; at + (loads - 1) * step < end; at += loads * step) seen = with_eights<loads>(seen, at);
    for (; at < end; at += step) seen = with_eights<1>(seen, at);
    return seen;
  }
};

// A threadgroup a row, whose classes stand side by side. With `eight` rows begin at multiples of
// eight elements, and so many classes divide them.
template <typename T, bool eight>
[[kernel]] void cross_entropy_rows(
    device const T* x [[buffer(0)]], device const T* chances [[buffer(1)]],
    device const float* weight [[buffer(2)]], device float4* found [[buffer(3)]],
    constant Entropy& numbers [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
    uint in_group [[thread_index_in_threadgroup]], uint2 threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float4 partial[32];
  const uint classes = numbers.classes, width = eight ? 8 : 1;
  x += ulong(group.y) * classes;
  if (numbers.has_chances) chances += ulong(group.y) * classes;
  const Part<T, eight> part = {x, in_group * width, threads.x * width, classes, numbers.softcap};
  const float2 seen = part.read();
  float shares = 0.0f, product = 0.0f;
  if (is_shared(numbers))
    for (uint column = in_group; column < classes; column += threads.x) {
      const float share = share_of(chance_at(chances, column, numbers), weight, column, numbers);
      shares += share;
      product += share * capped(float(x[column]), numbers.softcap);
    }
  float4 state = merged_simdgroup(float4(seen, shares, product));
  if (lane == 0) partial[simd] = state;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  state = merged_simdgroup(lane < simds ? partial[lane] : nothing());
  if (in_group == 0) found[group.y] = state;
}

// A thread a row, whose classes lie `inner` apart: rows stand side by side.
template <typename T>
[[kernel]] void cross_entropy_columns(device const T* x [[buffer(0)]],
                                      device const T* chances [[buffer(1)]],
                                      device const float* weight [[buffer(2)]],
                                      device float4* found [[buffer(3)]],
                                      constant Entropy& numbers [[buffer(4)]],
                                      uint2 in_grid [[thread_position_in_grid]]) {
  const uint inner = numbers.inner;
  const ulong start = ulong(in_grid.y) * numbers.classes * inner + in_grid.x;
  x += start;
  if (numbers.has_chances) chances += start;
  float largest = -INFINITY, sum = 0.0f, shares = 0.0f, product = 0.0f;
  for (uint column = 0; column < numbers.classes; ++column) {
    const ulong at = ulong(column) * inner;
    const float logit = capped(float(x[at]), numbers.softcap);
    const float next = max(largest, logit);
    const float base = base_of(next);
    sum = sum * exp(largest - base) + exp(logit - base);
    largest = next;
    if (is_shared(numbers)) {
      const float share = share_of(chance_at(chances, at, numbers), weight, column, numbers);
      shares += share;
      product += share * logit;
    }
  }
  found[ulong(in_grid.y) * inner + in_grid.x] = float4(largest, sum, shares, product);
}

// Reports targets out of range: a kernel of its own that goes first, so that nobody who looks at
// the reports waits for more than that.
template <typename T>
[[kernel]] void cross_entropy_targets(device const int* target [[buffer(0)]],
                                      constant Entropy& numbers [[buffer(1)]],
                                      device c10::metal::ErrorMessages* errors [[buffer(2)]],
                                      uint2 in_grid [[thread_position_in_grid]]) {
  const long label = class_of(target, ulong(in_grid.y) * numbers.inner + in_grid.x, numbers);
  if (label != no_class && ulong(label) >= ulong(numbers.classes))
    TORCH_REPORT_ERROR(errors, "Target ", label, " is out of bounds.");
}

// The loss of each row, what it counts in a mean, and what the gradient needs.
template <typename T>
[[kernel]] void cross_entropy_losses(
    device const T* x [[buffer(0)]], device const int* target [[buffer(1)]],
    device const float* weight [[buffer(2)]], device const float4* found [[buffer(3)]],
    device float* losses [[buffer(4)]], device float* counted [[buffer(5)]],
    device packed_float2* states [[buffer(6)]], constant Entropy& numbers [[buffer(7)]],
    uint2 in_grid [[thread_position_in_grid]]) {
  const uint inner = numbers.inner;
  const ulong row = ulong(in_grid.y) * inner + in_grid.x;
  const float4 state = found[row];
  const float lse = state.x + log(state.y);
  const long label = class_of(target, row, numbers);
  const bool out_of_range = label != no_class && ulong(label) >= ulong(numbers.classes);
  float loss = numbers.z_loss * lse * lse, of_class = 0.0f;
  if (is_shared(numbers)) loss += lse * state.z - state.w;
  if (label != no_class && !out_of_range) {
    const ulong at = (ulong(in_grid.y) * numbers.classes + ulong(label)) * inner + in_grid.x;
    of_class = numbers.has_weight ? weight[label] : 1.0f;
    loss += (1.0f - numbers.smoothing) * of_class * (lse - capped(float(x[at]), numbers.softcap));
  }
  const bool counts = numbers.has_chances || (label != no_class && !out_of_range);
  const float share = (1.0f - numbers.smoothing) * of_class + state.z;
  losses[row] = counts ? loss : 0.0f;
  counted[row] = of_class;
  states[row] = packed_float2(lse, counts ? share + 2.0f * numbers.z_loss * lse : 0.0f);
}

// --- backward --------------------------------------------------------------------------

// A threadgroup all rows that lie side by side. The gradient may be written over the logits.
template <typename T>
[[kernel]] void cross_entropy_backward(
    device const T* x [[buffer(0)]], device const int* target [[buffer(1)]],
    device const T* chances [[buffer(2)]], device const float* weight [[buffer(3)]],
    device const float* scales [[buffer(4)]], device const packed_float2* states [[buffer(5)]],
    device T* gradient [[buffer(6)]], constant Entropy& numbers [[buffer(7)]],
    uint2 group [[threadgroup_position_in_grid]], uint in_group [[thread_index_in_threadgroup]],
    uint2 threads [[threads_per_threadgroup]]) {
  const uint inner = numbers.inner;
  const uint length = numbers.classes * inner;
  const ulong start = ulong(group.y) * length;
  x += start;
  gradient += start;
  if (numbers.has_chances) chances += start;
  for (uint at = in_group; at < length; at += threads.x) {
    const uint column = inner == 1 ? at : at / inner;
    const ulong row = inner == 1 ? group.y : ulong(group.y) * inner + at % inner;
    const long label = class_of(target, row, numbers);
    const float2 state = states[row];
    const float logit = capped(float(x[at]), numbers.softcap);
    float slope = state.y * exp(logit - state.x);
    if (is_shared(numbers))
      slope -= share_of(chance_at(chances, at, numbers), weight, column, numbers);
    if (label == long(numbers.first) + long(column))
      slope -= (1.0f - numbers.smoothing) * (numbers.has_weight ? weight[label] : 1.0f);
    if (numbers.softcap > 0.0f)
      slope *= 1.0f - (logit / numbers.softcap) * (logit / numbers.softcap);
    const bool counts = numbers.has_chances || label != no_class;
    // anymetal: allow(aliasing) a thread has read the logit before it writes the gradient there
    gradient[at] = T(counts ? scales[row * numbers.scale_step] * slope : 0.0f);
  }
}

#define ROWS(T)                                                        \
  template [[host_name("cross_entropy_rows_" #T)]] [[kernel]]          \
  decltype(cross_entropy_rows<T, false>) cross_entropy_rows<T, false>; \
  template [[host_name("cross_entropy_rows_vec8_" #T)]] [[kernel]]     \
  decltype(cross_entropy_rows<T, true>) cross_entropy_rows<T, true>;
ROWS(float)
ROWS(half)
ROWS(bfloat)
INSTANTIATE(cross_entropy_columns)
INSTANTIATE(cross_entropy_targets)
INSTANTIATE(cross_entropy_losses)
INSTANTIATE(cross_entropy_backward)
