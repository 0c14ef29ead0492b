// One value or four neighbouring ones, as float: the same kernel text for both widths.
#pragma once
#include "shared/ahead.h"
#include "shared/types.h"

template <uint width>
struct Width;

template <>
struct Width<1> {
  using type = float;
  template <typename T>
  static float load(device const T* from) {
    return float(*from);
  }
  template <typename T>
  static void store(device T* to, float value) {
    // anymetal: allow(aliasing) in place, a thread has read what it writes
    *to = T(value);
  }
  // As it would be read back.
  template <typename T>
  static float rounded(float value) {
    return float(T(value));
  }
};

// The pointer must be aligned to four elements.
template <>
struct Width<4> {
  using type = float4;
  template <typename T>
  static float4 load(device const T* from) {
    return float4(*reinterpret_cast<device const vec<T, 4>*>(from));
  }
  template <typename T>
  static void store(device T* to, float4 value) {
    // anymetal: allow(aliasing) in place, a thread has read what it writes
    *reinterpret_cast<device vec<T, 4>*>(to) = vec<T, 4>(value);
  }
  // What nobody reads soon.
  static void store_once(device float* to, float4 value) {
    write_once(reinterpret_cast<device uint4*>(to), as_type<uint4>(value));
  }
  template <typename T>
  static float4 rounded(float4 value) {
    return float4(vec<T, 4>(value));
  }
};

// Eight neighbouring elements; of 16 bits they are one access of 16 bytes. The pointer must be
// aligned to all of them.
struct Eight {
  float4 low;
  float4 high;

  template <typename T>
  static Eight load(device const T* from) {
    if constexpr (sizeof(T) == 2) {
      const uint4 words = *reinterpret_cast<device const uint4*>(from);
      return {float4(as_type<vec<T, 4>>(words.xy)), float4(as_type<vec<T, 4>>(words.zw))};
    }
    return {Width<4>::load(from), Width<4>::load(from + 4)};
  }

  template <typename T>
  static void store(device T* to, float4 low, float4 high) {
    if constexpr (sizeof(T) == 2) {
      const uint2 first = as_type<uint2>(vec<T, 4>(low));
      // anymetal: allow(aliasing) in place, a thread has read what it writes
      *reinterpret_cast<device uint4*>(to) = uint4(first, as_type<uint2>(vec<T, 4>(high)));
    } else {
      Width<4>::store(to, low);
      Width<4>::store(to + 4, high);
    }
  }
};

// Elements as they lie in memory: those of 16 bits take half of the registers that floats do, until
// they are needed.
template <typename T, uint width>
struct Lying {
  using type = vec<T, width>;
  static type load(device const T* from) { return *reinterpret_cast<device const type*>(from); }
  static void read(thread float4* values, type from) { values[0] = float4(from); }
  static type anew(type value, uint) { return value; }
};
template <typename T>
struct Lying<T, 8> {
  static_assert(sizeof(T) == 2, "one access of 16 bytes");
  using type = uint4;
  static type load(device const T* from) { return *reinterpret_cast<device const uint4*>(from); }
  static void read(thread float4* values, type from) {
    values[0] = float4(as_type<vec<T, 4>>(from.xy));
    values[1] = float4(as_type<vec<T, 4>>(from.zw));
  }
  // The same, to be read again: a compiler would rather keep the floats, which take more registers.
  // `zero` is 0, which it must not know.
  static type anew(type value, uint zero) { return forgotten(value, zero); }
};

// One access of one, four or eight elements, as vectors of up to four.
template <uint width>
struct Access {
  using Part = Width<width>;
  using type = typename Part::type;
  static constexpr constant uint parts = 1;
  static constexpr constant uint step = width;

  template <typename T>
  static void load(thread type* values, device const T* from) {
    values[0] = Part::load(from);
  }
  template <typename T>
  static void store(device T* to, thread const type* values) {
    Part::store(to, values[0]);
  }
  static void fill(thread type* values, float value) { values[0] = type(value); }
};
template <>
struct Access<8> {
  using Part = Width<4>;
  using type = float4;
  static constexpr constant uint parts = 2;
  static constexpr constant uint step = 4;

  template <typename T>
  static void load(thread float4* values, device const T* from) {
    const Eight eight = Eight::load(from);
    values[0] = eight.low;
    values[1] = eight.high;
  }
  template <typename T>
  static void store(device T* to, thread const float4* values) {
    Eight::store(to, values[0], values[1]);
  }
  static void fill(thread float4* values, float value) { values[0] = values[1] = float4(value); }
};

inline float sum_of(float value) { return value; }
inline float sum_of(float4 value) { return (value.x + value.y) + (value.z + value.w); }
inline float largest_of(float value) { return value; }
// A NaN need not show.
inline float largest_of(float4 value) {
  return fast::max(fast::max(value.x, value.y), fast::max(value.z, value.w));
}

// The largest of a simdgroup, by the order that integers of the same bits have: many GPUs reduce
// integers faster than floats. A NaN need not show, 0 is larger than -0.
inline int ordered(int bits) { return bits ^ (bits >> 31 & 0x7fffffff); }
inline float largest_of_simdgroup(float value) {
  return as_type<float>(ordered(simd_max(ordered(as_type<int>(value)))));
}

// A long sum that does not lose the small values: what each addition rounds away is added later.
// It starts as {0, 0}.
template <typename V>
struct CompensatedSum {
  V total;
  V rest;
  void add(V value) {
    const V wanted = value + rest;
    const V next = total + wanted;
    // Infinities have no rest.
    const V lost = wanted - (next - total);
    rest = select(V(0.0f), lost, isfinite(lost));
    total = next;
  }
};

// Of `count` values a lane, the sum over a team of lanes of that which is the lane's own number in
// so many lanes. Lanes whose numbers differ in one bit exchange the half of their values that is
// the other's.
template <uint count, uint team, typename V>
inline V own_sum(thread V* values, uint lane) {
#pragma unroll
  for (uint mask = 1; mask < count; mask *= 2) {
    const bool odd = lane & mask;
#pragma unroll
    for (uint i = 0; i < count / 2 / mask; ++i) {
      const V low = values[2 * i], high = values[2 * i + 1];
      values[i] = (odd ? high : low) + simd_shuffle_xor(odd ? low : high, mask);
    }
  }
  V value = values[0];
#pragma unroll
  for (uint mask = count; mask < team; mask *= 2) value += simd_shuffle_xor(value, mask);
  return value;
}
