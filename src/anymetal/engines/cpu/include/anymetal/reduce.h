// Votes, reductions and scans of lanes: one of them computes for all, in vectors.
//
// Included by anymetal/collective.h, which says what they give.
#pragma once
#include <anymetal/lanes.h>

// Bit l: lane l is active and `expression` holds there.
AM_INLINE unsigned am_vote(bool expression) {
  return am_collective<unsigned, true>(uchar(expression), [](unsigned active, const uchar* in,
                                                             unsigned* out) {
    am_wide<bool, 32> yes = __builtin_convertvector(am_load_wide<uchar, 32>(in), am_wide<bool, 32>);
    am_wide<unsigned, 32> votes = active & __builtin_bit_cast(unsigned, yes);
    am_store_wide<unsigned, 32>(out, votes);
  });
}

// ---- Reductions --------------------------------------------------------------------------------

template <class S, int Stride>
AM_INLINE am_wide<S, 32 * Stride> am_load_active(unsigned active, const void* in, S neutral) {
  am_wide<S, 32 * Stride> nothing = neutral;
  auto mask = am_wide_mask<Stride>(active, am_counting<32 * Stride>());
  return mask ? am_load_wide<S, 32 * Stride>(in) : nothing;
}

// Elements onto those `Distance` before them, then at half the distance, down to `Stride`: the
// first `Stride` are the result. Less than 16 bytes would leave the vector registers on their way
// from one function to the next.
template <class Operation, class S, int Stride, int Distance, int Count, int... I>
AM_INLINE am_wide<S, Count> am_fold_in_place(am_wide<S, Count> value, am_indices<int, I...> all) {
  am_wide<S, Count> far = __builtin_shufflevector(value, value, ((I + Distance) % Count)...);
  am_wide<S, Count> both = Operation::apply(value, far);
  if constexpr (Distance == Stride) {
    return both;
  } else {
    return am_fold_in_place<Operation, S, Stride, Distance / 2, Count>(both, all);
  }
}

// The upper half of the lanes onto the lower half, until one lane is left: of `Count` elements the
// first `Stride` of the result.
template <class Operation, class S, int Stride, int Count, int... I>
AM_INLINE auto am_fold(am_wide<S, Count> value, am_indices<int, I...>) {
  constexpr int half_count = Count / 2;
  if constexpr (Count == Stride) {
    return value;
  } else if constexpr (Count * sizeof(S) == 16) {
    return am_fold_in_place<Operation, S, Stride, half_count, Count>(value, am_counting<Count>());
  } else {
    am_wide<S, half_count> low = __builtin_shufflevector(value, value, I...);
    am_wide<S, half_count> high = __builtin_shufflevector(value, value, (I + half_count)...);
    am_wide<S, half_count> both = Operation::apply(low, high);
    return am_fold<Operation, S, Stride, half_count>(both, am_counting<half_count / 2>());
  }
}

template <class Operation, class S, int Stride, int... I>
AM_INLINE void am_reduce_simdgroup(am_wide<S, 32 * Stride> values, void* out,
                                   am_indices<int, I...>) {
  auto total = am_fold<Operation, S, Stride, 32 * Stride>(values, am_counting<16 * Stride>());
  if constexpr (Stride == 1) {
    *static_cast<S*>(out) = total[0];
  } else {
    am_store_wide<S, Stride>(out, __builtin_shufflevector(total, total, I...));
  }
}

// Eight quads at once. Both sides of each pair compute the same; the quad's first lane is taken for
// all.
template <class Operation, class S, int Stride, int... I>
AM_INLINE void am_reduce_quads(am_wide<S, 32 * Stride> values, void* out, am_indices<int, I...>) {
  auto far = __builtin_shufflevector(values, values, (I ^ (2 * Stride))...);
  auto pairs = Operation::apply(values, far);
  auto near = __builtin_shufflevector(pairs, pairs, (I ^ Stride)...);
  auto totals = Operation::apply(pairs, near);
  auto result =
      __builtin_shufflevector(totals, totals, (I / (4 * Stride) * 4 * Stride + I % Stride)...);
  am_store_wide<S, 32 * Stride>(out, result);
}

// `Operation` over the active lanes of the group; every one of them gets the result.
template <unsigned Width, class Operation, class T>
AM_INLINE T am_reduce(T value) {
  typedef typename am_lane_layout<T>::element S;
  constexpr int stride = am_lane_layout<T>::stride;
  return am_collective < T,
         Width ==
             32 > (value, [](unsigned active, const T* in, T* out) {
               auto values = am_load_active<S, stride>(active, in, Operation::template neutral<S>);
               if constexpr (Width == 4) {
                 am_reduce_quads<Operation, S, stride>(values, out, am_counting<32 * stride>());
               } else {
                 am_reduce_simdgroup<Operation, S, stride>(values, out, am_counting<stride>());
               }
             });
}

// ---- Scans -------------------------------------------------------------------------------------

// `Operation` over the active lanes of the group below this one, and this one where Inclusive.
template <unsigned Width, class Operation, bool Inclusive, class T>
AM_INLINE T am_scan(T value) {
  typedef typename am_lane_layout<T>::element S;
  constexpr int stride = am_lane_layout<T>::stride;
  return am_collective<T>(value, [](unsigned active, const T* in, T* out) {
    am_wide<S, stride> so_far = Operation::template neutral<S>;
    for (unsigned lane = 0; lane < AM_SIMD_WIDTH; ++lane) {
      if (lane % Width == 0) so_far = Operation::template neutral<S>;
      am_wide<S, stride> next = Operation::apply(so_far, am_load_wide<S, stride>(in + lane));
      next = active >> lane & 1 ? next : so_far;
      am_store_wide<S, stride>(out + lane, Inclusive ? next : so_far);
      so_far = next;
    }
  });
}
