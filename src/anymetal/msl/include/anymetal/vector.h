// vec<T, N>: two to four components as members x, y, z, w; N components' size and alignment, a
// vector of three taking the room of four.
//
// Operators work on each component; a scalar operand is converted to the component type first.
// There is no implicit conversion between vectors of different types.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/arithmetic.h>
#include <anymetal/scalar.h>
#include <anymetal/swizzle.h>

namespace std {
// The compiler builds one from a list in braces; it must have this name and shape.
template <class T>
class initializer_list {
 public:
  constexpr const T* begin() const { return data_; }
  constexpr unsigned long size() const { return size_; }

 private:
  const T* data_;
  unsigned long size_;
};
}  // namespace std

namespace metal {

// Builds a vector from E(component) of each component.
#define AM_PER_COMPONENT(VECTOR, E)        \
  if constexpr (N == 2) {                  \
    return VECTOR(E(x), E(y));             \
  } else if constexpr (N == 3) {           \
    return VECTOR(E(x), E(y), E(z));       \
  } else {                                 \
    return VECTOR(E(x), E(y), E(z), E(w)); \
  }

#define AM_BINARY(OP, RESULT, E, CONSTRAINT)                     \
  AM_VECTOR_INLINE friend constexpr RESULT operator OP(V a, V b) \
    requires CONSTRAINT                                          \
  {                                                              \
    AM_PER_COMPONENT(RESULT, E)                                  \
  }
#define AM_COMPOUND(OP, CONSTRAINT)                               \
  AM_VECTOR_INLINE friend constexpr V& operator OP##=(V & a, V b) \
    requires CONSTRAINT                                           \
  {                                                               \
    return a = a OP b;                                            \
  }
#define AM_ARITHMETIC(OP, E, CONSTRAINT) AM_BINARY(OP, V, E, CONSTRAINT) AM_COMPOUND(OP, CONSTRAINT)
#define AM_UNARY(OP, RESULT, E, CONSTRAINT)                 \
  AM_VECTOR_INLINE friend constexpr RESULT operator OP(V a) \
    requires CONSTRAINT                                     \
  {                                                         \
    AM_PER_COMPONENT(RESULT, E)                             \
  }

#define AM_E_ADD(c) am_add<T>(a.c, b.c)
#define AM_E_SUBTRACT(c) am_subtract<T>(a.c, b.c)
#define AM_E_MULTIPLY(c) am_multiply<T>(a.c, b.c)
#define AM_E_DIVIDE(c) am_divide<T>(a.c, b.c)
#define AM_E_REMAINDER(c) am_remainder<T>(a.c, b.c)
#define AM_E_AND(c) static_cast<T>(a.c & b.c)
#define AM_E_OR(c) static_cast<T>(a.c | b.c)
#define AM_E_XOR(c) static_cast<T>(a.c ^ b.c)
#define AM_E_LEFT(c) am_shift_left<T>(a.c, b.c)
#define AM_E_RIGHT(c) am_shift_right<T>(a.c, b.c)
#define AM_E_PLUS(c) a.c
#define AM_E_MINUS(c) am_negate<T>(a.c)
#define AM_E_COMPLEMENT(c) static_cast<T>(~a.c)
#define AM_E_NOT(c) !a.c
#define AM_E_EQUAL(c) a.c == b.c
#define AM_E_UNEQUAL(c) a.c != b.c
#define AM_E_LESS(c) a.c < b.c
#define AM_E_GREATER(c) a.c > b.c
#define AM_E_LESS_EQUAL(c) a.c <= b.c
#define AM_E_GREATER_EQUAL(c) a.c >= b.c
#define AM_E_BOTH(c) (a.c && b.c)
#define AM_E_EITHER(c) (a.c || b.c)

// Sums and products of vec<T, N>.
template <class T, int N, bool = am_is_contracted<T>>
struct am_vector_sums {
  typedef vec<T, N> V;
  static constexpr bool number = !__is_same(T, bool);

  AM_ARITHMETIC(+, AM_E_ADD, (number))
  AM_ARITHMETIC(-, AM_E_SUBTRACT, (number))
  AM_ARITHMETIC(*, AM_E_MULTIPLY, (number))
  AM_UNARY(+, V, AM_E_PLUS, (number))
  AM_UNARY(-, V, AM_E_MINUS, (number))
};

// A product's type is const, and nothing else is: not what a function returns, nor `auto p = a *
// b`. So an operand that is a constant temporary stands in the text as a product, negated or not.
template <class P, class V>
concept am_product_of = __is_same(P, const V);

#define AM_SUM(OP, E, NAME)                                                                   \
  AM_VECTOR_INLINE friend constexpr V operator OP(const V& left, const V& right) {            \
    const V a = left, b = right;                                                              \
    AM_PER_COMPONENT(V, E)                                                                    \
  }                                                                                           \
  template <am_product_of<V> P>                                                               \
  AM_VECTOR_INLINE friend constexpr V operator OP(P&& a, const V& right) {                    \
    const V b = right;                                                                        \
    AM_PER_COMPONENT(V, AM_E_LEFT_##NAME)                                                     \
  }                                                                                           \
  template <am_product_of<V> P>                                                               \
  AM_VECTOR_INLINE friend constexpr V operator OP(const V& left, P&& b) {                     \
    const V a = left;                                                                         \
    AM_PER_COMPONENT(V, AM_E_RIGHT_##NAME)                                                    \
  }                                                                                           \
  template <am_product_of<V> P, am_product_of<V> Q>                                           \
  AM_VECTOR_INLINE friend constexpr V operator OP(P&& a, Q&& b){AM_PER_COMPONENT(             \
      V, AM_E_BOTH_##NAME)} AM_VECTOR_INLINE friend constexpr V& operator OP##=(V& a,         \
                                                                                const V& b) { \
    return a = a OP b;                                                                        \
  }                                                                                           \
  template <am_product_of<V> P>                                                               \
  AM_VECTOR_INLINE friend constexpr V& operator OP##=(V & a, P && b) {                        \
    return a = a OP static_cast<P&&>(b);                                                      \
  }
#define AM_E_LEFT_SUM(c) am_contracted_sum<am_left_product>(a.c, b.c)
#define AM_E_RIGHT_SUM(c) am_contracted_sum<am_right_product>(a.c, b.c)
#define AM_E_BOTH_SUM(c) am_contracted_sum<am_two_products>(a.c, b.c)
#define AM_E_LEFT_DIFFERENCE(c) am_contracted_difference<am_left_product>(a.c, b.c)
#define AM_E_RIGHT_DIFFERENCE(c) am_contracted_difference<am_right_product>(a.c, b.c)
#define AM_E_BOTH_DIFFERENCE(c) am_contracted_difference<am_two_products>(a.c, b.c)
#define AM_E_PRODUCT(c) am_contracted_product<T>(a.c, b.c)

// A sign in front of a product leaves it one.
#define AM_SIGN(OP, E)                                               \
  AM_VECTOR_INLINE friend constexpr V operator OP(const V& vector) { \
    const V a = vector;                                              \
    AM_PER_COMPONENT(V, E)                                           \
  }                                                                  \
  template <am_product_of<V> P>                                      \
  AM_VECTOR_INLINE friend constexpr const V operator OP(P&& a) {     \
    AM_PER_COMPONENT(V, E)                                           \
  }

template <class T, int N>
struct am_vector_sums<T, N, true> {
  typedef vec<T, N> V;

  AM_SUM(+, AM_E_ADD, SUM)
  AM_SUM(-, AM_E_SUBTRACT, DIFFERENCE)
  AM_SIGN(+, AM_E_PLUS)
  AM_SIGN(-, AM_E_MINUS)
  AM_VECTOR_INLINE friend constexpr const V operator*(V a, V b){
      AM_PER_COMPONENT(V, AM_E_PRODUCT)} AM_COMPOUND(*, (true))
};

// Operators of vec<T, N>, found through argument-dependent lookup; scalars convert implicitly.
template <class T, int N>
struct am_vector_operators : am_vector_sums<T, N> {
  typedef vec<T, N> V;
  typedef vec<bool, N> B;
  static constexpr bool number = !__is_same(T, bool);
  static constexpr bool integer = am_is_integer<T>;
  static constexpr bool bits = am_is_integer<T> || __is_same(T, bool);

  AM_ARITHMETIC(/, AM_E_DIVIDE, (number))
  AM_ARITHMETIC(%, AM_E_REMAINDER, (integer))
  AM_ARITHMETIC(&, AM_E_AND, (bits))
  AM_ARITHMETIC(|, AM_E_OR, (bits))
  AM_ARITHMETIC(^, AM_E_XOR, (bits))
  AM_ARITHMETIC(<<, AM_E_LEFT, (integer))
  AM_ARITHMETIC(>>, AM_E_RIGHT, (integer))
  AM_UNARY(~, V, AM_E_COMPLEMENT, (integer))
  AM_UNARY(!, B, AM_E_NOT, (true))
  AM_BINARY(==, B, AM_E_EQUAL, (true))
  AM_BINARY(!=, B, AM_E_UNEQUAL, (true))
  AM_BINARY(<, B, AM_E_LESS, (true))
  AM_BINARY(>, B, AM_E_GREATER, (true))
  AM_BINARY(<=, B, AM_E_LESS_EQUAL, (true))
  AM_BINARY(>=, B, AM_E_GREATER_EQUAL, (true))
  AM_BINARY(&&, B, AM_E_BOTH, (true))
  AM_BINARY(||, B, AM_E_EITHER, (true))

  AM_VECTOR_INLINE friend constexpr V& operator++(V& a)
    requires(integer)
  {
    return a = a + V(T(1));
  }
  AM_VECTOR_INLINE friend constexpr V& operator--(V& a)
    requires(integer)
  {
    return a = a - V(T(1));
  }
  AM_VECTOR_INLINE friend constexpr V operator++(V& a, int)
    requires(integer)
  {
    V before = a;
    ++a;
    return before;
  }
  AM_VECTOR_INLINE friend constexpr V operator--(V& a, int)
    requires(integer)
  {
    V before = a;
    --a;
    return before;
  }
};

// A vector as part of a larger one. Deduced, because a scalar must not become a vector here.
template <class V, class T, int N>
concept am_part = __is_same(V, vec<T, N>) || __is_same(V, packed_vec<T, N>);

// One value in braces. Converting it here lets a list narrow, as it may in Metal.
template <class T>
struct am_item {
  T value;

  template <class U>
    requires am_converts_implicitly<U, T>
  AM_INLINE constexpr am_item(U scalar) : value(static_cast<T>(scalar)) {}
};

// Initialisers of the components from F(component, its number).
#define AM_INITIALISE_2(F) x(F(x, 0)), y(F(y, 1))
#define AM_INITIALISE_3(F) AM_INITIALISE_2(F), z(F(z, 2))
#define AM_INITIALISE_4(F) AM_INITIALISE_3(F), w(F(w, 3))
#define AM_FROM_SCALAR(c, i) am_convert<T>(scalar)
#define AM_FROM_VECTOR(c, i) am_convert<T>(v.c)
#define AM_FROM_LIST(c, i) i < list.size() ? list.begin()[i].value : T(0)

#define AM_COMPONENT_2(i) (i == 0 ? x : y)
#define AM_COMPONENT_3(i) (i == 0 ? x : i == 1 ? y : z)
#define AM_COMPONENT_4(i) (i == 0 ? x : i == 1 ? y : i == 2 ? z : w)

// What vectors of every size share. A scalar fills all components. A list in braces fills what it
// does not name with zero. Components of a constant or a temporary are read as values, because a
// write to them would be lost. What makes a vector of a packed one is a template also where the
// types are the same: else each copy of a vector would complete the packed class, to see whether it
// takes a vector.
#define AM_VECTOR_MEMBERS(N)                                                           \
  typedef T element_type;                                                              \
  static constexpr int am_size = N;                                                    \
  vec() = default;                                                                     \
  template <class U>                                                                   \
    requires am_converts<U, T>                                                         \
  AM_VECTOR_INLINE constexpr explicit(!am_converts_implicitly<U, T>) vec(U scalar)     \
      : AM_INITIALISE_##N(AM_FROM_SCALAR) {}                                           \
  template <class U>                                                                   \
    requires(!__is_same(U, T))                                                         \
  AM_VECTOR_INLINE constexpr explicit vec(const vec<U, N>& v)                          \
      : AM_INITIALISE_##N(AM_FROM_VECTOR) {}                                           \
  template <class U>                                                                   \
  AM_VECTOR_INLINE constexpr explicit(!__is_same(U, T)) vec(const packed_vec<U, N>& v) \
      : AM_INITIALISE_##N(AM_FROM_VECTOR) {}                                           \
  AM_VECTOR_INLINE constexpr vec(std::initializer_list<am_item<T>> list)               \
      : AM_INITIALISE_##N(AM_FROM_LIST) {}                                             \
  AM_INLINE constexpr T& operator[](int i) & {                                         \
    if (__builtin_is_constant_evaluated()) return AM_COMPONENT_##N(i);                 \
    return (&x)[i];                                                                    \
  }                                                                                    \
  AM_INLINE constexpr T operator[](int i) const& {                                     \
    if (__builtin_is_constant_evaluated()) return AM_COMPONENT_##N(i);                 \
    return (&x)[i];                                                                    \
  }                                                                                    \
  AM_SWIZZLES(N)

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> : am_vector_operators<T, 2> {
  T x, y;

  AM_VECTOR_INLINE constexpr vec(T x, T y) : x(x), y(y) {}
  AM_VECTOR_MEMBERS(2)
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> : am_vector_operators<T, 3> {
  T x, y, z;

  AM_VECTOR_INLINE constexpr vec(T x, T y, T z) : x(x), y(y), z(z) {}
  AM_VECTOR_INLINE constexpr vec(am_part<T, 2> auto v, T z) : x(v.x), y(v.y), z(z) {}
  AM_VECTOR_INLINE constexpr vec(T x, am_part<T, 2> auto v) : x(x), y(v.x), z(v.y) {}
  AM_VECTOR_MEMBERS(3)
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> : am_vector_operators<T, 4> {
  T x, y, z, w;

  AM_VECTOR_INLINE constexpr vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
  AM_VECTOR_INLINE constexpr vec(am_part<T, 2> auto v, T z, T w) : x(v.x), y(v.y), z(z), w(w) {}
  AM_VECTOR_INLINE constexpr vec(T x, am_part<T, 2> auto v, T w) : x(x), y(v.x), z(v.y), w(w) {}
  AM_VECTOR_INLINE constexpr vec(T x, T y, am_part<T, 2> auto v) : x(x), y(y), z(v.x), w(v.y) {}
  AM_VECTOR_INLINE constexpr vec(am_part<T, 2> auto v, am_part<T, 2> auto u)
      : x(v.x), y(v.y), z(u.x), w(u.y) {}
  AM_VECTOR_INLINE constexpr vec(am_part<T, 3> auto v, T w) : x(v.x), y(v.y), z(v.z), w(w) {}
  AM_VECTOR_INLINE constexpr vec(T x, am_part<T, 3> auto v) : x(x), y(v.x), z(v.y), w(v.z) {}
  AM_VECTOR_MEMBERS(4)
};

// Longer ones have elements and no more: Metal has no names for them, but kernels keep fragments of
// matrices in them.
template <class T, int N>
  requires(N == 8 || N == 16)
struct alignas(N * sizeof(T)) vec<T, N> {
  typedef T element_type;
  static constexpr int am_size = N;

  vec() = default;
  template <class U>
    requires am_converts<U, T>
  AM_INLINE constexpr explicit(!am_converts_implicitly<U, T>) vec(U scalar) {
    for (int i = 0; i < N; ++i) am_elements[i] = am_convert<T>(scalar);
  }
  AM_INLINE constexpr T& operator[](int i) & { return am_elements[i]; }
  AM_INLINE constexpr T operator[](int i) const& { return am_elements[i]; }

 private:
  T am_elements[N];
};

}  // namespace metal

#endif
