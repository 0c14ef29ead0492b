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
  return am_exchange(value, [=](auto values, unsigned active, unsigned lane) AM_ALWAYS {
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
  return am_exchange(value, [](auto values, unsigned active, unsigned lane)
                                AM_ALWAYS { return values[am_first_lane<Width>(active, lane)]; });
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
  am_filled<T> own = {data, filling};
  return am_exchange(own, [=](auto values, unsigned active, unsigned lane) AM_ALWAYS {
    int position = int(lane & (modulo - 1)) + distance, width = modulo;
    bool fills = position < 0 || position >= width;
    unsigned wrapped = unsigned(position) & (modulo - 1);
    unsigned from = ((lane & ~(modulo - 1)) + wrapped) % AM_SIMD_WIDTH;
    bool readable = position >= -width && position < 2 * width && (active >> from & 1);
    am_filled<T> read = values[from];
    if (!readable) return data;
    return fills ? read.filling : read.data;
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

// ---- Votes, reductions and scans: each target's own, in the order above -----------------------
//
//   am_vote(expression)                 bit l: lane l is active and the expression holds there
//   am_reduce<Width, Operation>(value)  over the active lanes of the group; each gets the result
//   am_scan<Width, Operation, Inclusive>(value)   over the active lanes below this one

#include <anymetal/reduce.h>

#pragma float_control(pop)

#endif
