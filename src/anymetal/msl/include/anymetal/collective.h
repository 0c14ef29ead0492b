// The collectives behind metal_simdgroup (groups of 32 lanes) and metal_quadgroup (groups of 4).
//
// Metal leaves open what a lane reads from a lane that is inactive or does not exist. Here it reads
// its own value. Reductions and scans see the active lanes only, and always combine them in one
// order:
//
//   reduction  a binary tree over lane numbers: lane l with lane l + 16, the sixteen results
//   likewise
//              at distance 8, then 4, 2, 1 (quads: 2, 1); an inactive lane brings the neutral
//              element
//   scan       from the lowest lane upwards, one after the other
//
// so that a result depends on the values and the active lanes alone. Every operation rounds to the
// lanes' own type. Integers wrap around. min and max pass over NaN unless all active lanes hold it.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/arithmetic.h>
#include <anymetal/lanes.h>

// Fast math must not change the order of operations, nor forget about the NaN of min and max.
#pragma float_control(precise, on, push)

// ---- What the collectives take -----------------------------------------------------------------
// Any integer or
// floating-point scalar or vector but bool, long, ulong and bfloat.

template <class S>
constexpr bool am_is_lane_integer = am_is_integer<S> && sizeof(S) <= 4;
template <class S>
constexpr bool am_is_lane_scalar =
    am_is_lane_integer<S> || __is_same(S, half) || __is_same(S, float);

template <class T>
concept am_lane_value = am_is_lane_scalar<typename am_lane_layout<T>::element>;
template <class T>
concept am_lane_integer = am_is_lane_integer<typename am_lane_layout<T>::element>;

// ---- Exchange: a lane reads what another one brought -------------------------------------------

// This lane's number in its group of Width lanes, and the lane its group begins with.
template <unsigned Width>
AM_INLINE unsigned am_lane_in_group() {
  return am_lane() % Width;
}
template <unsigned Width>
AM_INLINE unsigned am_group_start(unsigned lane) {
  return lane & ~(Width - 1);
}

// The value of lane `source` of the group.
template <unsigned Width, class T>
AM_INLINE T am_read_lane(T value, unsigned source) {
  return am_exchange(value, [source, value](const T* values, unsigned active, unsigned lane) {
    unsigned from = am_group_start<Width>(lane) + source % Width;
    bool readable = source < Width && (active >> from & 1);
    T read = values[from];
    return readable ? read : value;
  });
}

// The first active lane of the group that `lane` belongs to.
template <unsigned Width>
AM_INLINE unsigned am_first_lane(unsigned active, unsigned lane) {
  unsigned start = am_group_start<Width>(lane);
  return start + __builtin_ctz(active >> start);
}

template <unsigned Width, class T>
AM_INLINE T am_read_first_lane(T value) {
  return am_exchange(value, [](const T* values, unsigned active, unsigned lane) {
    return values[am_first_lane<Width>(active, lane)];
  });
}

// A value and what takes its place where a shift runs over the edge.
template <class T>
struct am_filled {
  T data;
  T filling;
};

// Shifts the values within each `modulo` lanes by `distance` lanes; what runs in at the edge comes
// from the opposite edge of the filling values.
template <class T>
AM_INLINE T am_shift_and_fill(T data, T filling, int distance, unsigned modulo) {
  return am_exchange(
      am_filled<T>{data, filling},
      [distance, modulo](const am_filled<T>* values, unsigned active, unsigned lane) {
        int position = int(lane & (modulo - 1)) + distance, width = modulo;
        bool fills = position < 0 || position >= width;
        unsigned wrapped = unsigned(position) & (modulo - 1);
        unsigned from = ((lane & ~(modulo - 1)) + wrapped) % AM_SIMD_WIDTH;
        bool readable = position >= -width && position < 2 * width && (active >> from & 1);
        if (!readable) return values[lane].data;
        return fills ? values[from].filling : values[from].data;
      });
}

// ---- Votes -------------------------------------------------------------------------------------

// Bit l: lane l is active and `expression` holds there.
AM_INLINE unsigned am_vote(bool expression) {
  return am_collective<unsigned, true>(uchar(expression), [](unsigned active, const uchar* in,
                                                             unsigned* out) {
    am_wide<bool, 32> yes = __builtin_convertvector(am_load_wide<uchar, 32>(in), am_wide<bool, 32>);
    am_wide<unsigned, 32> votes = active & __builtin_bit_cast(unsigned, yes);
    am_store_wide<unsigned, 32>(out, votes);
  });
}

// ---- Operations on all lanes -------------------------------------------------------------------

struct am_sum {
  template <class S>
  static constexpr S neutral = S(0);
  template <class Wide>
  AM_INLINE static Wide apply(Wide a, Wide b) {
    return a + b;
  }
};

struct am_product {
  template <class S>
  static constexpr S neutral = S(1);
  template <class Wide>
  AM_INLINE static Wide apply(Wide a, Wide b) {
    return a * b;
  }
};

template <class S>
constexpr S am_largest = am_is_signed_integer<S> ? S((1u << (sizeof(S) * 8 - 1)) - 1) : S(~0u);

// The neutral element of both for floating point is NaN: the other operand is the result.
struct am_minimum {
  template <class S>
  static constexpr S neutral = am_largest<S>;
  template <class Wide>
  AM_INLINE static Wide apply(Wide a, Wide b) {
    return ((b < a) | (a != a)) ? b : a;
  }
};

struct am_maximum {
  template <class S>
  static constexpr S neutral = S(~am_largest<S>);
  template <class Wide>
  AM_INLINE static Wide apply(Wide a, Wide b) {
    return ((a < b) | (a != a)) ? b : a;
  }
};
template <>
constexpr half am_minimum::neutral<half> = half(__builtin_nanf(""));
template <>
constexpr float am_minimum::neutral<float> = __builtin_nanf("");
template <>
constexpr half am_maximum::neutral<half> = half(__builtin_nanf(""));
template <>
constexpr float am_maximum::neutral<float> = __builtin_nanf("");

struct am_bits_and {
  template <class S>
  static constexpr S neutral = S(~0u);
  template <class Wide>
  AM_INLINE static Wide apply(Wide a, Wide b) {
    return a & b;
  }
};

struct am_bits_or {
  template <class S>
  static constexpr S neutral = S(0);
  template <class Wide>
  AM_INLINE static Wide apply(Wide a, Wide b) {
    return a | b;
  }
};

struct am_bits_xor {
  template <class S>
  static constexpr S neutral = S(0);
  template <class Wide>
  AM_INLINE static Wide apply(Wide a, Wide b) {
    return a ^ b;
  }
};

// ---- Reductions --------------------------------------------------------------------------------

template <class S, int Stride>
AM_INLINE am_wide<S, 32 * Stride> am_load_active(unsigned active, const void* in, S neutral) {
  am_wide<S, 32 * Stride> nothing = neutral;
  auto mask = am_wide_mask<Stride>(active, am_counting<32 * Stride>());
  return mask ? am_load_wide<S, 32 * Stride>(in) : nothing;
}

// The upper half of the lanes onto the lower half, until one lane is left: `Count` elements become
// `Stride`.
template <class Operation, class S, int Stride, int Count, int... I>
AM_INLINE am_wide<S, Stride> am_fold(am_wide<S, Count> value, am_indices<int, I...>) {
  constexpr int half_count = Count / 2;
  am_wide<S, half_count> low = __builtin_shufflevector(value, value, I...);
  am_wide<S, half_count> high = __builtin_shufflevector(value, value, (I + half_count)...);
  am_wide<S, half_count> both = Operation::apply(low, high);
  if constexpr (half_count == Stride) {
    return both;
  } else {
    return am_fold<Operation, S, Stride, half_count>(both, am_counting<half_count / 2>());
  }
}

template <class Operation, class S, int Stride, int... I>
AM_INLINE void am_reduce_simdgroup(am_wide<S, 32 * Stride> values, void* out,
                                   am_indices<int, I...>) {
  auto total = am_fold<Operation, S, Stride, 32 * Stride>(values, am_counting<16 * Stride>());
  am_store_wide<S, 32 * Stride>(out, __builtin_shufflevector(total, total, (I % Stride)...));
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
                 am_reduce_simdgroup<Operation, S, stride>(values, out, am_counting<32 * stride>());
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

#pragma float_control(pop)

#endif
