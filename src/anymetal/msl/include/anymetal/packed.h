// packed_vec<T, N>: the components of a vector without padding, aligned as one component.
//
// A storage format: it takes the operators of vec<T, N> by converting to it, so that the result of
// an expression is a vec. Assignment, components and swizzles work in place.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/vector.h>

namespace metal {

#define AM_FROM_UNPACKED(c, i) v.c
#define AM_PACKED_COMPOUND(OP) \
  AM_VECTOR_INLINE constexpr packed_vec& operator OP##=(V b) & { return *this = V(*this) OP b; }
#define AM_PACKED_SUM(OP)                                                \
  AM_VECTOR_INLINE constexpr packed_vec& operator OP##=(const V & b) & { \
    return *this = V(*this) OP b;                                        \
  }                                                                      \
  template <am_product_of<V> P>                                          \
  AM_VECTOR_INLINE constexpr packed_vec& operator OP##=(P && b) & {      \
    return *this = V(*this) OP static_cast<P&&>(b);                      \
  }

#define AM_PACKED_MEMBERS(N)                                                               \
  typedef T element_type;                                                                  \
  typedef vec<T, N> V;                                                                     \
  packed_vec() = default;                                                                  \
  AM_VECTOR_INLINE constexpr packed_vec(V v) : AM_INITIALISE_##N(AM_FROM_UNPACKED) {}      \
  template <class U>                                                                       \
    requires am_converts<U, T>                                                             \
  AM_VECTOR_INLINE constexpr explicit(!am_converts_implicitly<U, T>) packed_vec(U scalar)  \
      : AM_INITIALISE_##N(AM_FROM_SCALAR) {}                                               \
  template <class U>                                                                       \
    requires(!__is_same(U, T))                                                             \
  AM_VECTOR_INLINE constexpr explicit packed_vec(const vec<U, N>& v) : packed_vec(V(v)) {} \
  template <class U>                                                                       \
    requires(!__is_same(U, T))                                                             \
  AM_VECTOR_INLINE constexpr explicit packed_vec(const packed_vec<U, N>& v)                \
      : AM_INITIALISE_##N(AM_FROM_VECTOR) {}                                               \
  template <class First, class Second, class... Rest>                                      \
    requires(__is_constructible(V, First, Second, Rest...))                                \
  AM_VECTOR_INLINE constexpr packed_vec(First first, Second second, Rest... rest)          \
      : packed_vec(V(first, second, rest...)) {}                                           \
  AM_VECTOR_INLINE constexpr packed_vec(std::initializer_list<am_item<T>> list)            \
      : packed_vec(V(list)) {}                                                             \
  AM_INLINE constexpr T& operator[](int i) & {                                             \
    if (__builtin_is_constant_evaluated()) return AM_COMPONENT_##N(i);                     \
    return (&x)[i];                                                                        \
  }                                                                                        \
  AM_INLINE constexpr T operator[](int i) const& {                                         \
    if (__builtin_is_constant_evaluated()) return AM_COMPONENT_##N(i);                     \
    return (&x)[i];                                                                        \
  }                                                                                        \
  AM_PACKED_SUM(+)                                                                         \
  AM_PACKED_SUM(-)                                                                         \
  AM_PACKED_COMPOUND(*)                                                                    \
  AM_PACKED_COMPOUND(/)                                                                    \
  AM_PACKED_COMPOUND(%)                                                                    \
  AM_PACKED_COMPOUND(&)                                                                    \
  AM_PACKED_COMPOUND(|)                                                                    \
  AM_PACKED_COMPOUND(^)                                                                    \
  AM_PACKED_COMPOUND(<<)                                                                   \
  AM_PACKED_COMPOUND(>>)                                                                   \
  AM_VECTOR_INLINE constexpr packed_vec& operator++() &                                    \
    requires(am_is_integer<T>)                                                             \
  {                                                                                        \
    return *this += V(T(1));                                                               \
  }                                                                                        \
  AM_VECTOR_INLINE constexpr packed_vec& operator--() &                                    \
    requires(am_is_integer<T>)                                                             \
  {                                                                                        \
    return *this -= V(T(1));                                                               \
  }                                                                                        \
  AM_VECTOR_INLINE constexpr V operator++(int) &                                           \
    requires(am_is_integer<T>)                                                             \
  {                                                                                        \
    V before = *this;                                                                      \
    ++*this;                                                                               \
    return before;                                                                         \
  }                                                                                        \
  AM_VECTOR_INLINE constexpr V operator--(int) &                                           \
    requires(am_is_integer<T>)                                                             \
  {                                                                                        \
    V before = *this;                                                                      \
    --*this;                                                                               \
    return before;                                                                         \
  }                                                                                        \
  AM_SWIZZLES(N)

// The base makes the operators of vec<T, N> visible to argument-dependent lookup.
template <class T>
struct packed_vec<T, 2> : am_vector_operators<T, 2> {
  T x, y;

  AM_PACKED_MEMBERS(2)
};

template <class T>
struct packed_vec<T, 3> : am_vector_operators<T, 3> {
  T x, y, z;

  AM_PACKED_MEMBERS(3)
};

template <class T>
struct packed_vec<T, 4> : am_vector_operators<T, 4> {
  T x, y, z, w;

  AM_PACKED_MEMBERS(4)
};

#undef AM_PACKED_COMPOUND
#undef AM_PACKED_SUM
#undef AM_PACKED_MEMBERS

}  // namespace metal

// The names packed_float2 ... packed_ulong4, at global scope and in metal. MSL has no packed_bool.
#define AM_NAME_PACKED(T)                        \
  typedef metal::packed_vec<T, 2> packed_##T##2; \
  typedef metal::packed_vec<T, 3> packed_##T##3; \
  typedef metal::packed_vec<T, 4> packed_##T##4; \
  namespace metal {                              \
  using ::packed_##T##2;                         \
  using ::packed_##T##3;                         \
  using ::packed_##T##4;                         \
  }
AM_EACH_INTEGER(AM_NAME_PACKED)
AM_EACH_FLOAT(AM_NAME_PACKED)
#undef AM_NAME_PACKED

#endif
