// Swizzles of vectors: AM_SWIZZLES(N) declares, inside a class with members x, y (z, w), every
// selection of two to four components by the letters xyzw or rgba.
//
// A swizzle is a property: reading it calls am_get_xy(), assigning to it am_set_xy(). So `v.xy` is
// a real vec<T, 2>, and `p->zx += 2`, `auto`, template deduction and constexpr work. Only swizzles
// without a repeated letter can be assigned to. The setters take lvalues only, because a write to a
// component of a copy (`v.xyz.xy = 0`) would be lost silently.
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

#define AM_PROPERTY(NAME, WHAT, TYPE) \
  __declspec(property(get = am_get_##WHAT, put = am_set_##WHAT)) TYPE NAME;

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
  AM_PROPERTY(cp, p, T)

#define AM_SWIZZLE_2(p, cp, q, cq)                                                           \
  AM_VECTOR_INLINE constexpr vec<T, 2> am_get_##p##q() const { return vec<T, 2>(p, q); }     \
  AM_VECTOR_INLINE constexpr void am_set_##p##q(vec<T, 2> v) & AM_ASSIGNABLE(#p[0], #q[0]) { \
    p = v.x, q = v.y;                                                                        \
  }                                                                                          \
  AM_PROPERTY(p##q, p##q, vec<T AM_COMMA 2>)                                                 \
  AM_PROPERTY(cp##cq, p##q, vec<T AM_COMMA 2>)

#define AM_SWIZZLE_3(p, cp, q, cq, s, cs)                                                      \
  AM_VECTOR_INLINE constexpr vec<T, 3> am_get_##p##q##s() const { return vec<T, 3>(p, q, s); } \
  AM_VECTOR_INLINE constexpr void am_set_##p##q##s(vec<T, 3> v) &                              \
      AM_ASSIGNABLE(#p[0], #q[0], #s[0]) {                                                     \
    p = v.x, q = v.y, s = v.z;                                                                 \
  }                                                                                            \
  AM_PROPERTY(p##q##s, p##q##s, vec<T AM_COMMA 3>)                                             \
  AM_PROPERTY(cp##cq##cs, p##q##s, vec<T AM_COMMA 3>)

#define AM_SWIZZLE_4(p, cp, q, cq, s, cs, t, ct)                     \
  AM_VECTOR_INLINE constexpr vec<T, 4> am_get_##p##q##s##t() const { \
    return vec<T, 4>(p, q, s, t);                                    \
  }                                                                  \
  AM_VECTOR_INLINE constexpr void am_set_##p##q##s##t(vec<T, 4> v) & \
      AM_ASSIGNABLE(#p[0], #q[0], #s[0], #t[0]) {                    \
    p = v.x, q = v.y, s = v.z, t = v.w;                              \
  }                                                                  \
  AM_PROPERTY(p##q##s##t, p##q##s##t, vec<T AM_COMMA 4>)             \
  AM_PROPERTY(cp##cq##cs##ct, p##q##s##t, vec<T AM_COMMA 4>)

#define AM_COMMA ,

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
  AM_LOOP1_##N(AM_LETTER1, N) template <int... I>                             \
  AM_INLINE constexpr auto am_at() & {                                        \
    return am_components<__remove_reference_t(decltype(*this)), I...>{*this}; \
  }

#endif
