// One value or four neighbouring ones, as float: the same kernel text for both widths. What a
// thread keeps is best loaded as it is stored, all of it, and converted then: a conversion waits
// for its load, and the loads behind it with it.
#pragma once
#include "shared/types.h"

template <uint width>
struct Width;

template <>
struct Width<1> {
  using type = float;
  template <typename T>
  using stored = T;
  template <typename T>
  static T load_stored(device const T* from) {
    return *from;
  }
  template <typename T>
  static float load(device const T* from) {
    return float(*from);
  }
  template <typename T>
  static void store(device T* to, float value) {
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
  using stored = vec<T, 4>;
  template <typename T>
  static vec<T, 4> load_stored(device const T* from) {
    return *reinterpret_cast<device const vec<T, 4>*>(from);
  }
  template <typename T>
  static float4 load(device const T* from) {
    return float4(load_stored(from));
  }
  template <typename T>
  static void store(device T* to, float4 value) {
    *reinterpret_cast<device vec<T, 4>*>(to) = vec<T, 4>(value);
  }
  template <typename T>
  static float4 rounded(float4 value) {
    return float4(vec<T, 4>(value));
  }
};

// `width` neighbouring elements as one vector or several: 8 elements of 16 bits are one access of
// 16 bytes. The pointer must be aligned to all of them.
template <uint width>
struct Parts {
  static constexpr constant uint count = width > 4 ? width / 4 : 1;
  using Part = Width<width / count>;
  using type = typename Part::type;
  type values[count];

  template <typename T>
  static Parts load(device const T* from) {
    Parts parts;
    if constexpr (width == 8 && sizeof(T) == 2) {
      const uint4 words = *reinterpret_cast<device const uint4*>(from);
      parts.values[0] = float4(as_type<vec<T, 4>>(words.xy));
      parts.values[1] = float4(as_type<vec<T, 4>>(words.zw));
    } else {
      for (uint i = 0; i < count; ++i) parts.values[i] = Part::load(from + i * 4);
    }
    return parts;
  }

  template <typename T>
  void store(device T* to) const thread {
    if constexpr (width == 8 && sizeof(T) == 2) {
      const uint2 low = as_type<uint2>(vec<T, 4>(values[0]));
      const uint2 high = as_type<uint2>(vec<T, 4>(values[1]));
      *reinterpret_cast<device uint4*>(to) = uint4(low, high);
    } else {
      for (uint i = 0; i < count; ++i) Part::store(to + i * 4, values[i]);
    }
  }
};

inline float sum_of(float value) { return value; }
inline float sum_of(float4 value) { return (value.x + value.y) + (value.z + value.w); }
inline float largest_of(float value) { return value; }
// A NaN need not show.
inline float largest_of(float4 value) {
  return fast::max(fast::max(value.x, value.y), fast::max(value.z, value.w));
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
