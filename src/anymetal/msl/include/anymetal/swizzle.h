// Swizzles of vectors: AM_SWIZZLES(N) declares, inside a class with members x, y (z, w), every
// selection of two to four components by the letters xyzw or rgba.
//
// A swizzle is a property: reading it calls am_get_xy(), assigning to it am_set_xy(). So `v.xy` is
// a real vec<T, 2>, and `p->zx += 2`, `auto`, template deduction and constexpr work. Only swizzles
// without a repeated letter can be assigned to. The setters take lvalues only, because a write to a
// component of a copy (`v.xyz.xy = 0`) would be lost silently. Their types are named once in each
// class, am_2_letters to am_4_letters: clang would put vec<T, 2> together anew for every member.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/scalar.h>

template <class... Letters>
constexpr bool am_distinct(Letters... letters) {
  char all[] = {letters...};
  for (unsigned i = 0; i < sizeof...(Letters); ++i) {
    for (unsigned j = 0; j < i; ++j) {
      if (all[i] == all[j]) return false;
    }
  }
  return true;
}

// Apple: "vector is not assignable (contains duplicate components)".
template <char... Letters>
concept vector_is_assignable_without_duplicate_components = am_distinct(Letters...);

#define AM_ASSIGNABLE(...) requires vector_is_assignable_without_duplicate_components<__VA_ARGS__>

#define AM_PROPERTY(NAME, WHAT, SET, TYPE) \
  __declspec(property(get = am_get_##WHAT, put = SET)) TYPE NAME;

// Whether letters differ from each other, as 0 or 1. Of the 336 swizzles of four components 276
// repeat a letter: a setter each that nothing can call would be a third of the precompiled header.
#define AM_DIFFER_xx 0
#define AM_DIFFER_xy 1
#define AM_DIFFER_xz 1
#define AM_DIFFER_xw 1
#define AM_DIFFER_yx 1
#define AM_DIFFER_yy 0
#define AM_DIFFER_yz 1
#define AM_DIFFER_yw 1
#define AM_DIFFER_zx 1
#define AM_DIFFER_zy 1
#define AM_DIFFER_zz 0
#define AM_DIFFER_zw 1
#define AM_DIFFER_wx 1
#define AM_DIFFER_wy 1
#define AM_DIFFER_wz 1
#define AM_DIFFER_ww 0
#define AM_ALL_000 0
#define AM_ALL_001 0
#define AM_ALL_010 0
#define AM_ALL_011 0
#define AM_ALL_100 0
#define AM_ALL_101 0
#define AM_ALL_110 0
#define AM_ALL_111 1
#define AM_ALL_OF(a, b, c) AM_ALL_##a##b##c
#define AM_ALL(a, b, c) AM_ALL_OF(a, b, c)
#define AM_DIFFER_3(p, q, s) AM_ALL(AM_DIFFER_##p##q, AM_DIFFER_##p##s, AM_DIFFER_##q##s)
#define AM_DIFFER_4(p, q, s, t) AM_ALL(AM_DIFFER_3(p, q, s), AM_DIFFER_3(p, q, t), AM_DIFFER_##s##t)

// A setter of its own where letters differ, else the one of this many letters that is refused.
#define AM_SETTER_1(NAME, N, ...) \
  AM_VECTOR_INLINE constexpr void NAME(am_##N##_letters v) & { __VA_ARGS__; }
#define AM_SETTER_0(NAME, N, ...)
#define AM_SETTER_IF(DIFFER, NAME, N, ...) AM_SETTER_##DIFFER(NAME, N, __VA_ARGS__)
#define AM_SETTER(DIFFER, NAME, N, ...) AM_SETTER_IF(DIFFER, NAME, N, __VA_ARGS__)
#define AM_SET_1(NAME, N) NAME
#define AM_SET_0(NAME, N) am_set_repeated_##N
#define AM_SET_IF(DIFFER, NAME, N) AM_SET_##DIFFER(NAME, N)
#define AM_SET(DIFFER, NAME, N) AM_SET_IF(DIFFER, NAME, N)
#define AM_REFUSED_SETTER(N, ...) \
  constexpr void am_set_repeated_##N(am_##N##_letters) & AM_ASSIGNABLE(__VA_ARGS__);

// The components I of a vector, to be changed in place: what the front end puts for `v.xy += a` in
// sources whose own operators would hide from clang that v.xy is a property (msl/swizzles.py).
template <class Vector, int... I>
struct am_components {
  typedef metal::vec<typename Vector::element_type, sizeof...(I)> value_type;
  Vector& vector;

  AM_VECTOR_INLINE constexpr void set(value_type value)
    requires(am_distinct(char(I)...))
  {
    int place = 0;
    (..., (vector[I] = value[place++]));
  }

#define AM_COMPOUND_OF_COMPONENTS(OP)                     \
  template <class U>                                      \
  AM_VECTOR_INLINE constexpr void operator OP##=(U&& b) { \
    set(value_type(vector[I]...) OP static_cast<U&&>(b)); \
  }
  AM_COMPOUND_OF_COMPONENTS(+)
  AM_COMPOUND_OF_COMPONENTS(-)
  AM_COMPOUND_OF_COMPONENTS(*)
  AM_COMPOUND_OF_COMPONENTS(/)
  AM_COMPOUND_OF_COMPONENTS(%)
  AM_COMPOUND_OF_COMPONENTS(&)
  AM_COMPOUND_OF_COMPONENTS(|)
  AM_COMPOUND_OF_COMPONENTS(^)
  AM_COMPOUND_OF_COMPONENTS(<<)
  AM_COMPOUND_OF_COMPONENTS(>>)
#undef AM_COMPOUND_OF_COMPONENTS
  AM_VECTOR_INLINE constexpr void operator++(int) { *this += 1; }
  AM_VECTOR_INLINE constexpr void operator--(int) { *this -= 1; }
};

// p to t are letters of xyzw, cp to ct the same components' letters of rgba.
#define AM_SWIZZLE_1(p, cp)                                            \
  AM_VECTOR_INLINE constexpr T am_get_##p() const { return p; }        \
  AM_VECTOR_INLINE constexpr void am_set_##p(T value) & { p = value; } \
  AM_PROPERTY(cp, p, am_set_##p, T)

#define AM_BOTH_PROPERTIES(NAME, COLOURS, DIFFER, N)                          \
  AM_PROPERTY(NAME, NAME, AM_SET(DIFFER, am_set_##NAME, N), am_##N##_letters) \
  AM_PROPERTY(COLOURS, NAME, AM_SET(DIFFER, am_set_##NAME, N), am_##N##_letters)

#define AM_SWIZZLE_2(p, cp, q, cq)                                                             \
  AM_VECTOR_INLINE constexpr am_2_letters am_get_##p##q() const { return am_2_letters(p, q); } \
  AM_SETTER(AM_DIFFER_##p##q, am_set_##p##q, 2, p = v.x, q = v.y)                              \
  AM_BOTH_PROPERTIES(p##q, cp##cq, AM_DIFFER_##p##q, 2)

#define AM_SWIZZLE_3(p, cp, q, cq, s, cs)                                         \
  AM_VECTOR_INLINE constexpr am_3_letters am_get_##p##q##s() const {              \
    return am_3_letters(p, q, s);                                                 \
  }                                                                               \
  AM_SETTER(AM_DIFFER_3(p, q, s), am_set_##p##q##s, 3, p = v.x, q = v.y, s = v.z) \
  AM_BOTH_PROPERTIES(p##q##s, cp##cq##cs, AM_DIFFER_3(p, q, s), 3)

#define AM_SWIZZLE_4(p, cp, q, cq, s, cs, t, ct)                                                 \
  AM_VECTOR_INLINE constexpr am_4_letters am_get_##p##q##s##t() const {                          \
    return am_4_letters(p, q, s, t);                                                             \
  }                                                                                              \
  AM_SETTER(AM_DIFFER_4(p, q, s, t), am_set_##p##q##s##t, 4, p = v.x, q = v.y, s = v.z, t = v.w) \
  AM_BOTH_PROPERTIES(p##q##s##t, cp##cq##cs##ct, AM_DIFFER_4(p, q, s, t), 4)

// A macro cannot expand inside itself, so each letter of a swizzle has its own loop.
#define AM_LOOP1_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define AM_LOOP1_3(M, ...) AM_LOOP1_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define AM_LOOP1_4(M, ...) AM_LOOP1_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)
#define AM_LOOP2_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define AM_LOOP2_3(M, ...) AM_LOOP2_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define AM_LOOP2_4(M, ...) AM_LOOP2_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)
#define AM_LOOP3_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define AM_LOOP3_3(M, ...) AM_LOOP3_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define AM_LOOP3_4(M, ...) AM_LOOP3_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)
#define AM_LOOP4_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define AM_LOOP4_3(M, ...) AM_LOOP4_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define AM_LOOP4_4(M, ...) AM_LOOP4_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)

#define AM_LETTER1(p, cp, N) AM_SWIZZLE_1(p, cp) AM_LOOP2_##N(AM_LETTER2, N, p, cp)
#define AM_LETTER2(q, cq, N, p, cp) \
  AM_SWIZZLE_2(p, cp, q, cq) AM_LOOP3_##N(AM_LETTER3, N, p, cp, q, cq)
#define AM_LETTER3(s, cs, N, p, cp, q, cq) \
  AM_SWIZZLE_3(p, cp, q, cq, s, cs) AM_LOOP4_##N(AM_LETTER4, p, cp, q, cq, s, cs)
#define AM_LETTER4(t, ct, p, cp, q, cq, s, cs) AM_SWIZZLE_4(p, cp, q, cq, s, cs, t, ct)

#define AM_SWIZZLES(N)                                                        \
  typedef vec<T, 2> am_2_letters;                                             \
  typedef vec<T, 3> am_3_letters;                                             \
  typedef vec<T, 4> am_4_letters;                                             \
  AM_REFUSED_SETTER(2, 'x', 'x')                                              \
  AM_REFUSED_SETTER(3, 'x', 'x', 'x')                                         \
  AM_REFUSED_SETTER(4, 'x', 'x', 'x', 'x')                                    \
  AM_LOOP1_##N(AM_LETTER1, N) template <int... I>                             \
  AM_INLINE constexpr auto am_at() & {                                        \
    return am_components<__remove_reference_t(decltype(*this)), I...>{*this}; \
  }

#endif
