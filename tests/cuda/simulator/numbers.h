// PTX's operations on numbers, by their opcodes' names. A result stands first, as in PTX, and all
// are bits, as registers have them.
#pragma once
#include "machine.h"

#pragma clang fp contract(off)
#define INLINE static inline __attribute__((always_inline))

typedef float f32;
typedef double f64;
typedef _Float16 f16;

template <class To, class From>
INLINE To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// A 16-bit float of the other kind. Computed with as a float, which holds every one of them.
struct bf16 {
  u16 word;
};

INLINE f32 widened(bf16 x) { return bits<f32>(u32(x.word) << 16); }
INLINE f32 widened(f16 x) { return x; }

// A sum that leaves a trace of what it drops in its last bit: rounded again, it is as if rounded
// once.
INLINE f64 sum_to_odd(f64 a, f64 b) {
  const f64 sum = a + b, of_b = sum - a;
  const f64 lost = (a - (sum - of_b)) + (b - of_b);
  if (lost != 0 && (bits<u64>(sum) & 1) == 0)
    return bits<f64>(bits<u64>(sum) + ((lost > 0) == (sum > 0) ? 1 : -1));
  return sum;
}
INLINE f32 to_odd(f64 x) {
  const f32 near = f32(x);
  if (f64(near) == x || near != near || __builtin_isinf(near) || (bits<u32>(near) & 1)) return near;
  const bool outward = (x > 0) == (x > f64(near));
  return bits<f32>(bits<u32>(near) + (outward ? 1 : -1));
}
INLINE bf16 to_bf16(f32 x) {
  const u32 word = bits<u32>(x);
  if (x != x) return {0x7FFF};
  return {u16((word + 0x7FFF + (word >> 16 & 1)) >> 16)};
}
template <class T>
INLINE T narrowed(f64 x) {
  if constexpr (sizeof(T) == 2 && !__is_same(T, f16))
    return to_bf16(to_odd(x));
  else
    return T(to_odd(x));
}

// The number that bits stand for; of a bfloat, a float.
template <class T, class U>
INLINE auto value_of(U word) {
  if constexpr (__is_same(T, bf16))
    return widened(bf16{word});
  else
    return bits<T>(word);
}
// -0 is less than 0.
INLINE f32 lesser(f32 a, f32 b) {
  return a < b ? a : b < a ? b : bits<f32>(bits<u32>(a) | bits<u32>(b));
}

// --- moving --------------------------------------------------------------------------------------

INLINE void mov_pred(u8& d, s32 a) { d = a != 0; }
INLINE void mov_b16(u16& d, u16 a) { d = a; }
INLINE void mov_b32(u32& d, u32 a) { d = a; }
INLINE void mov_u32(u32& d, u32 a) { d = a; }
INLINE void mov_b64(u64& d, u64 a) { d = a; }
INLINE void mov_u64(u64& d, u64 a) { d = a; }
INLINE void mov_b32(u32& d, u16 low, u16 high) { d = low | u32(high) << 16; }
INLINE void mov_b32(u16& low, u16& high, u32 a) { low = u16(a), high = u16(a >> 16); }
INLINE void mov_b64(u64& d, u32 low, u32 high) { d = low | u64(high) << 32; }
INLINE void mov_b64(u32& low, u32& high, u64 a) { low = u32(a), high = u32(a >> 32); }
INLINE void mov_b64(u64& d, u16 a, u16 b, u16 c, u16 e) {
  d = a | u64(b) << 16 | u64(c) << 32 | u64(e) << 48;
}
INLINE void mov_b64(u16& a, u16& b, u16& c, u16& e, u64 d) {
  a = u16(d), b = u16(d >> 16), c = u16(d >> 32), e = u16(d >> 48);
}

#define SELECT(name, T) \
  INLINE void selp_##name(T& d, T a, T b, u8 p) { d = p ? a : b; }
SELECT(b16, u16)
SELECT(u16, u16)
SELECT(s16, u16)
SELECT(b32, u32)
SELECT(u32, u32)
SELECT(s32, u32)
SELECT(f32, u32)
SELECT(b64, u64)
SELECT(u64, u64)
SELECT(s64, u64)
SELECT(f64, u64)

// --- whole numbers -------------------------------------------------------------------------------

#define BITWISE(T, name, expression) \
  INLINE void name(T& d, T a, T b) { d = T(expression); }
#define BITWISE_OF(T, type)     \
  BITWISE(T, and_##type, a& b)  \
  BITWISE(T, or_##type, a | b)  \
  BITWISE(T, xor_##type, a ^ b) \
  INLINE void not_##type(T& d, T a) { d = T(~a); }
BITWISE_OF(u16, b16)
BITWISE_OF(u32, b32)
BITWISE_OF(u64, b64)
BITWISE(u8, and_pred, a&& b)
BITWISE(u8, or_pred, a || b)
BITWISE(u8, xor_pred, !a != !b)
INLINE void not_pred(u8& d, u8 a) { d = !a; }

typedef __int128 s128;
typedef unsigned __int128 u128;
template <class T, class U>
INLINE U divided(U a, U b) {
  return T(b) == T(-1) && T(-1) < T(0) ? U(-a) : U(T(a) / T(b));
}

// T is the type computed in, U that of registers, W one twice as wide.
#define WHOLE(T, U, W, type)                                                               \
  INLINE void add_##type(U& d, U a, U b) { d = U(a + b); }                                 \
  INLINE void sub_##type(U& d, U a, U b) { d = U(a - b); }                                 \
  INLINE void mul_lo_##type(U& d, U a, U b) { d = U(u64(a) * u64(b)); }                    \
  INLINE void mul_hi_##type(U& d, U a, U b) { d = U(W(T(a)) * W(T(b)) >> sizeof(T) * 8); } \
  INLINE void mad_lo_##type(U& d, U a, U b, U c) { d = U(u64(a) * u64(b) + c); }           \
  INLINE void mad_hi_##type(U& d, U a, U b, U c) {                                         \
    d = U(U(W(T(a)) * W(T(b)) >> sizeof(T) * 8) + c);                                      \
  }                                                                                        \
  INLINE void div_##type(U& d, U a, U b) { d = b == 0 ? U(~U(0)) : divided<T, U>(a, b); }  \
  INLINE void rem_##type(U& d, U a, U b) {                                                 \
    d = b == 0 ? a : U(a - U(u64(divided<T, U>(a, b)) * u64(b)));                          \
  }                                                                                        \
  INLINE void min_##type(U& d, U a, U b) { d = T(a) < T(b) ? a : b; }                      \
  INLINE void max_##type(U& d, U a, U b) { d = T(a) > T(b) ? a : b; }                      \
  INLINE void abs_##type(U& d, U a) { d = T(a) < T(0) ? U(-a) : a; }                       \
  INLINE void neg_##type(U& d, U a) { d = U(-a); }                                         \
  INLINE void shr_##type(U& d, U a, u32 by) {                                              \
    d = U(by < sizeof(T) * 8 ? T(T(a) >> by) : T(T(a) < T(0) ? -1 : 0));                   \
  }                                                                                        \
  INLINE U add_##type(U old, U a) { return U(old + a); }                                   \
  INLINE U min_##type(U old, U a) { return T(a) < T(old) ? a : old; }                      \
  INLINE U max_##type(U old, U a) { return T(a) > T(old) ? a : old; }
WHOLE(u16, u16, u32, u16)
WHOLE(s16, u16, s32, s16)
WHOLE(u32, u32, u64, u32)
WHOLE(s32, u32, s64, s32)
WHOLE(u64, u64, u128, u64)
WHOLE(s64, u64, s128, s64)
INLINE void max_relu_s32(u32& d, u32 a, u32 b) { max_s32(d, a, b), max_s32(d, d, 0); }
INLINE void min_relu_s32(u32& d, u32 a, u32 b) { min_s32(d, a, b), max_s32(d, d, 0); }
INLINE void shr_b16(u16& d, u16 a, u32 by) { shr_u16(d, a, by); }
INLINE void shr_b32(u32& d, u32 a, u32 by) { shr_u32(d, a, by); }
INLINE void shr_b64(u64& d, u64 a, u32 by) { shr_u64(d, a, by); }
INLINE void shl_b16(u16& d, u16 a, u32 by) { d = by < 16 ? u16(u32(a) << by) : 0; }
INLINE void shl_b32(u32& d, u32 a, u32 by) { d = by < 32 ? a << by : 0; }
INLINE void shl_b64(u64& d, u64 a, u32 by) { d = by < 64 ? a << by : 0; }

// The carry goes from one to the next.
#define CARRY(U, W, type)                                                       \
  INLINE void addc_cc_##type(U& d, U a, U b, bool& carry) {                     \
    const W sum = W(a) + b + carry;                                             \
    d = U(sum), carry = bool(sum >> sizeof(U) * 8);                             \
  }                                                                             \
  INLINE void add_cc_##type(U& d, U a, U b, bool& carry) {                      \
    carry = false, addc_cc_##type(d, a, b, carry);                              \
  }                                                                             \
  INLINE void addc_##type(U& d, U a, U b, bool carry) { d = U(a + b + carry); } \
  INLINE void subc_cc_##type(U& d, U a, U b, bool& carry) {                     \
    const W taken = W(b) + carry;                                               \
    d = U(a - taken), carry = taken > a;                                        \
  }                                                                             \
  INLINE void sub_cc_##type(U& d, U a, U b, bool& carry) {                      \
    carry = false, subc_cc_##type(d, a, b, carry);                              \
  }                                                                             \
  INLINE void subc_##type(U& d, U a, U b, bool carry) { d = U(a - b - carry); }
CARRY(u32, u64, u32)
CARRY(u32, u64, s32)
CARRY(u32, u64, b32)
CARRY(u64, u128, u64)
CARRY(u64, u128, s64)
CARRY(u64, u128, b64)

// Two shorts at a time.
#define PAIR(name)                                                     \
  INLINE void name##x2(u32& d, u32 a, u32 b) {                         \
    u16 low, high;                                                     \
    name(low, u16(a), u16(b)), name(high, u16(a >> 16), u16(b >> 16)); \
    d = low | u32(high) << 16;                                         \
  }
PAIR(add_u16)
PAIR(add_s16)
PAIR(min_u16)
PAIR(min_s16)
PAIR(max_u16)
PAIR(max_s16)

#define WIDE(name, T, U, W, V)                                              \
  INLINE void mul_wide_##name(V& d, U a, U b) { d = V(W(T(a)) * W(T(b))); } \
  INLINE void mad_wide_##name(V& d, U a, U b, V c) { d = V(W(T(a)) * W(T(b))) + c; }
WIDE(u16, u16, u16, u32, u32)
WIDE(s16, s16, u16, s32, u32)
WIDE(u32, u32, u32, u64, u64)
WIDE(s32, s32, u32, s64, u64)

INLINE void popc_b32(u32& d, u32 a) { d = __builtin_popcount(a); }
INLINE void popc_b64(u32& d, u64 a) { d = __builtin_popcountl(a); }
INLINE void clz_b32(u32& d, u32 a) { d = a ? __builtin_clz(a) : 32; }
INLINE void clz_b64(u32& d, u64 a) { d = a ? __builtin_clzl(a) : 64; }
INLINE void brev_b32(u32& d, u32 a) { d = __builtin_bitreverse32(a); }
INLINE void brev_b64(u64& d, u64 a) { d = __builtin_bitreverse64(a); }

#define FIELD(name, T, U)                                                             \
  INLINE void bfe_##name(U& d, U a, u32 start, u32 length) {                          \
    constexpr u32 width = sizeof(U) * 8;                                              \
    start &= 255, length &= 255;                                                      \
    if (length == 0) {                                                                \
      d = 0;                                                                          \
      return;                                                                         \
    }                                                                                 \
    const u32 last = start + length - 1 < width - 1 ? start + length - 1 : width - 1; \
    const bool negative = T(-1) < T(0) && (a >> last & 1);                            \
    U found = 0;                                                                      \
    for (u32 i = 0; i < width; ++i) {                                                 \
      const bool inside = i < length && start + i < width;                            \
      found |= U(inside ? a >> (start + i) & 1 : U(negative)) << i;                   \
    }                                                                                 \
    d = found;                                                                        \
  }
FIELD(u32, u32, u32)
FIELD(s32, s32, u32)
FIELD(u64, u64, u64)
FIELD(s64, s64, u64)

INLINE void bfi_b32(u32& d, u32 a, u32 b, u32 start, u32 length) {
  start &= 255, length &= 255;
  for (u32 i = 0; i < length && start + i < 32; ++i)
    b = (b & ~(1u << (start + i))) | (a >> i & 1) << (start + i);
  d = b;
}

INLINE void prmt_b32(u32& d, u32 a, u32 b, u32 selector) {
  const u64 both = a | u64(b) << 32;
  u32 found = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 which = selector >> i * 4 & 15;
    u32 one = u32(both >> (which & 7) * 8) & 255;
    if (which & 8) one = one & 128 ? 255 : 0;
    found |= one << i * 8;
  }
  d = found;
}
INLINE u32 funnel_left(u32 low, u32 high, u32 by) {
  return u32((u64(high) << 32 | low) << by >> 32);
}
INLINE u32 funnel_right(u32 low, u32 high, u32 by) {
  return by ? low >> by | high << (32 - by) : low;
}
INLINE void shf_l_wrap_b32(u32& d, u32 a, u32 b, u32 c) { d = funnel_left(a, b, c & 31); }
INLINE void shf_r_wrap_b32(u32& d, u32 a, u32 b, u32 c) { d = funnel_right(a, b, c & 31); }

// --- comparisons ---------------------------------------------------------------------------------

#define COMPARE(name, T, U, operation) \
  INLINE void setp_##name(u8& p, U a, U b) { p = value_of<T>(a) operation value_of<T>(b); }
#define COMPARE_AND(name, type, U)                              \
  INLINE void setp_##name##_and_##type(u8& p, U a, U b, u8 q) { \
    setp_##name##_##type(p, a, b);                              \
    p = p && q;                                                 \
  }
#define COMPARE_WHOLE(T, U, type) \
  COMPARE(eq_##type, T, U, ==)    \
  COMPARE(ne_##type, T, U, !=)    \
  COMPARE(lt_##type, T, U, <)     \
  COMPARE(le_##type, T, U, <=)    \
  COMPARE(gt_##type, T, U, >)     \
  COMPARE(ge_##type, T, U, >=)
#define COMPARE_UNORDERED(name, T, U, operation) \
  INLINE void setp_##name(u8& p, U a, U b) { p = !(value_of<T>(a) operation value_of<T>(b)); }
#define COMPARE_FLOAT(T, U, type)                                                              \
  COMPARE(eq_##type, T, U, ==)                                                                 \
  COMPARE(lt_##type, T, U, <)                                                                  \
  COMPARE(le_##type, T, U, <=)                                                                 \
  COMPARE(gt_##type, T, U, >)                                                                  \
  COMPARE(ge_##type, T, U, >=)                                                                 \
  COMPARE(neu_##type, T, U, !=)                                                                \
  COMPARE_UNORDERED(ltu_##type, T, U, >=)                                                      \
  COMPARE_UNORDERED(leu_##type, T, U, >)                                                       \
  COMPARE_UNORDERED(gtu_##type, T, U, <=)                                                      \
  COMPARE_UNORDERED(geu_##type, T, U, <)                                                       \
  INLINE bool is_nan_##type(U a) { return value_of<T>(a) != value_of<T>(a); }                  \
  INLINE void setp_num_##type(u8& p, U a, U b) { p = !is_nan_##type(a) && !is_nan_##type(b); } \
  INLINE void setp_nan_##type(u8& p, U a, U b) { p = is_nan_##type(a) || is_nan_##type(b); }   \
  INLINE void setp_equ_##type(u8& p, U a, U b) {                                               \
    p = is_nan_##type(a) || is_nan_##type(b) || value_of<T>(a) == value_of<T>(b);              \
  }                                                                                            \
  INLINE void setp_ne_##type(u8& p, U a, U b) {                                                \
    p = !is_nan_##type(a) && !is_nan_##type(b) && value_of<T>(a) != value_of<T>(b);            \
  }
COMPARE_WHOLE(u16, u16, b16)
COMPARE_WHOLE(u16, u16, u16)
COMPARE_WHOLE(s16, u16, s16)
COMPARE_WHOLE(u32, u32, b32)
COMPARE_WHOLE(u32, u32, u32)
COMPARE_WHOLE(s32, u32, s32)
COMPARE_WHOLE(u64, u64, b64)
COMPARE_WHOLE(u64, u64, u64)
COMPARE_WHOLE(s64, u64, s64)
COMPARE_FLOAT(f16, u16, f16)
COMPARE_FLOAT(bf16, u16, bf16)
COMPARE_FLOAT(f32, u32, f32)
COMPARE_FLOAT(f64, u64, f64)
COMPARE_AND(ge, u32, u32)

// --- floats --------------------------------------------------------------------------------------

INLINE f32 flushed(f32 x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
#define FLOAT2(name, expression)                           \
  INLINE void name(u32& d, u32 first, u32 second) {        \
    const f32 a = bits<f32>(first), b = bits<f32>(second); \
    d = bits<u32>(f32(expression));                        \
  }
FLOAT2(add_rn_f32, a + b)
FLOAT2(sub_rn_f32, a - b)
FLOAT2(mul_rn_f32, a* b)
FLOAT2(div_rn_f32, a / b)
FLOAT2(add_f32, a + b)
FLOAT2(sub_f32, a - b)
FLOAT2(mul_f32, a* b)
FLOAT2(div_full_f32, a / b)
FLOAT2(div_approx_f32, a / b)
FLOAT2(min_f32, a != a ? b : b != b ? a : lesser(a, b))
FLOAT2(max_f32, a != a ? b : b != b ? a : -lesser(-a, -b))
FLOAT2(copysign_f32, __builtin_copysignf(b, a))
#define FLOAT1(name, expression)       \
  INLINE void name(u32& d, u32 word) { \
    const f32 a = bits<f32>(word);     \
    d = bits<u32>(f32(expression));    \
  }
FLOAT1(sqrt_rn_f32, __builtin_sqrtf(a))
FLOAT1(rcp_rn_f32, 1.0f / a)
FLOAT1(sqrt_approx_f32, __builtin_sqrtf(a))
FLOAT1(rsqrt_approx_f32, f32(1.0 / __builtin_sqrt(f64(a))))
FLOAT1(ex2_approx_ftz_f32, flushed(f32(__builtin_exp2(f64(flushed(a))))))
FLOAT1(lg2_approx_f32, f32(__builtin_log2(f64(a))))
FLOAT1(sin_approx_f32, f32(__builtin_sin(f64(a))))
FLOAT1(cos_approx_f32, f32(__builtin_cos(f64(a))))
INLINE void neg_f32(u32& d, u32 a) { d = a ^ 0x80000000u; }
INLINE void abs_f32(u32& d, u32 a) { d = a & 0x7FFFFFFFu; }
INLINE void neg_f64(u64& d, u64 a) { d = a ^ 1ul << 63; }
INLINE void abs_f64(u64& d, u64 a) { d = a & ~(1ul << 63); }
INLINE void fma_rn_f32(u32& d, u32 a, u32 b, u32 c) {
  d = bits<u32>(__builtin_fmaf(bits<f32>(a), bits<f32>(b), bits<f32>(c)));
}
#define DOUBLE2(name, expression)                          \
  INLINE void name(u64& d, u64 first, u64 second) {        \
    const f64 a = bits<f64>(first), b = bits<f64>(second); \
    d = bits<u64>(f64(expression));                        \
  }
DOUBLE2(add_rn_f64, a + b)
DOUBLE2(sub_rn_f64, a - b)
DOUBLE2(mul_rn_f64, a* b)
DOUBLE2(div_rn_f64, a / b)
DOUBLE2(add_f64, a + b)
DOUBLE2(sub_f64, a - b)
DOUBLE2(mul_f64, a* b)
DOUBLE2(min_f64, a != a ? b : b != b ? a : a < b ? a : b)
DOUBLE2(max_f64, a != a ? b : b != b ? a : a > b ? a : b)
INLINE void rcp_rn_f64(u64& d, u64 a) { d = bits<u64>(1.0 / bits<f64>(a)); }
// The lower word of the hardware's is zero.
INLINE void rsqrt_approx_f64(u64& d, u64 a) {
  d = bits<u64>(1.0 / __builtin_sqrt(bits<f64>(a))) >> 32 << 32;
}
INLINE void sqrt_rn_f64(u64& d, u64 a) { d = bits<u64>(__builtin_sqrt(bits<f64>(a))); }
INLINE void fma_rn_f64(u64& d, u64 a, u64 b, u64 c) {
  d = bits<u64>(__builtin_fma(bits<f64>(a), bits<f64>(b), bits<f64>(c)));
}

// Those of 16 bits, and pairs of them. Sums and products of two are exact in double or rounded
// once.
template <class T>
INLINE f64 wide(u16 word) {
  return f64(value_of<T>(word));
}
template <class T>
INLINE u16 word_of(f64 x) {
  return bits<u16>(narrowed<T>(x));
}
#define SMALL(T, type)                                                                            \
  INLINE u16 sum_##type(u16 a, u16 b) { return word_of<T>(wide<T>(a) + wide<T>(b)); }             \
  INLINE u16 difference_##type(u16 a, u16 b) { return word_of<T>(wide<T>(a) - wide<T>(b)); }      \
  INLINE u16 product_##type(u16 a, u16 b) { return word_of<T>(wide<T>(a) * wide<T>(b)); }         \
  INLINE u16 fused_##type(u16 a, u16 b, u16 c) {                                                  \
    return word_of<T>(sum_to_odd(wide<T>(a) * wide<T>(b), wide<T>(c)));                           \
  }                                                                                               \
  INLINE u16 less_##type(u16 a, u16 b) {                                                          \
    if (is_nan_##type(a)) return b;                                                               \
    if (is_nan_##type(b)) return a;                                                               \
    return word_of<T>(f64(lesser(f32(wide<T>(a)), f32(wide<T>(b)))));                             \
  }                                                                                               \
  INLINE u16 more_##type(u16 a, u16 b) {                                                          \
    return is_nan_##type(a) || is_nan_##type(b) ? less_##type(a, b)                               \
                                                : u16(less_##type(a ^ 32768, b ^ 32768) ^ 32768); \
  }                                                                                               \
  INLINE void fma_rn_##type(u16& d, u16 a, u16 b, u16 c) { d = fused_##type(a, b, c); }           \
  INLINE void fma_rn_##type##x2(u32& d, u32 a, u32 b, u32 c) {                                    \
    d = fused_##type(u16(a), u16(b), u16(c)) |                                                    \
        u32(fused_##type(u16(a >> 16), u16(b >> 16), u16(c >> 16))) << 16;                        \
  }                                                                                               \
  INLINE void neg_##type(u16& d, u16 a) { d = a ^ 0x8000; }                                       \
  INLINE void abs_##type(u16& d, u16 a) { d = a & 0x7FFF; }                                       \
  INLINE void neg_##type##x2(u32& d, u32 a) { d = a ^ 0x80008000u; }                              \
  INLINE void abs_##type##x2(u32& d, u32 a) { d = a & 0x7FFF7FFFu; }                              \
  SMALL2(add_rn_##type, sum_##type)                                                               \
  SMALL2(add_##type, sum_##type)                                                                  \
  SMALL2(sub_rn_##type, difference_##type)                                                        \
  SMALL2(sub_##type, difference_##type)                                                           \
  SMALL2(mul_rn_##type, product_##type)                                                           \
  SMALL2(mul_##type, product_##type)                                                              \
  SMALL2(min_##type, less_##type)                                                                 \
  SMALL2(max_##type, more_##type)
#define SMALL2(name, function)                                                      \
  INLINE void name(u16& d, u16 a, u16 b) { d = function(a, b); }                    \
  INLINE void name##x2(u32& d, u32 a, u32 b) {                                      \
    d = function(u16(a), u16(b)) | u32(function(u16(a >> 16), u16(b >> 16))) << 16; \
  }
SMALL(f16, f16)
SMALL(bf16, bf16)

// --- conversions ---------------------------------------------------------------------------------

// To the nearest float; or to a whole number: the nearest, the next to zero, below, above.
enum Rounding { rn, rni, rzi, rmi, rpi };

template <class T>
constexpr bool is_float = __is_same(T, f16) || __is_same(T, bf16) || __is_floating_point(T);

INLINE f64 whole(f64 x, Rounding how) {
  return how == rn    ? x
         : how == rzi ? __builtin_trunc(x)
         : how == rmi ? __builtin_floor(x)
         : how == rpi ? __builtin_ceil(x)
                      : __builtin_rint(x);
}
// As a double that is rounded once more: what has no place in it leaves a trace in its last bit.
template <class From>
INLINE f64 integer_to_odd(From x) {
  const f64 near = f64(x);
  const long double off = (long double)(x)-near;
  if (off == 0 || (bits<u64>(near) & 1)) return near;
  return bits<f64>(bits<u64>(near) + ((off > 0) == (near > 0) ? 1 : -1));
}
template <class To>
INLINE To clamped(f64 x) {
  constexpr u32 width = sizeof(To) * 8;
  constexpr bool is_signed = To(-1) < To(0);
  constexpr To least = is_signed ? To(u64(1) << (width - 1)) : To(0);
  const f64 limit = __builtin_ldexp(1.0, width - is_signed);
  if (x != x) return To(width == 64 ? u64(1) << 63 : 0);
  return x >= limit ? To(~u64(least)) : x <= (is_signed ? -limit : 0) ? least : To(x);
}

// Registers may be wider than what is in them: of a source the low bits count, and a result is
// extended.
template <class To, class From, Rounding how, class D, class A>
INLINE void cvt(D& d, A word) {
  if constexpr (is_float<From>) {
    const f64 x = whole(f64(value_of<From>(word)), how);
    if constexpr (__is_same(To, f64))
      d = bits<u64>(x);
    else if constexpr (__is_same(To, f32))
      d = bits<u32>(f32(x));
    else if constexpr (is_float<To>)
      d = word_of<To>(x);
    else
      d = D(clamped<To>(x));
  } else {
    const From x = From(word);
    if constexpr (__is_same(To, f64))
      d = bits<u64>(f64(x));
    else if constexpr (__is_same(To, f32))
      d = bits<u32>(f32(x));
    else if constexpr (is_float<To>)
      d = word_of<To>(integer_to_odd(x));
    else
      d = D(To(x));
  }
}
// Two floats as a pair: the first one above.
struct f16x2 {
  typedef f16 one;
};
struct bf16x2 {
  typedef bf16 one;
};
template <class To, class From, Rounding how>
INLINE void cvt(u32& d, u32 high, u32 low) {
  u16 words[2];
  cvt<typename To::one, From, how>(words[0], low);
  cvt<typename To::one, From, how>(words[1], high);
  d = words[0] | u32(words[1]) << 16;
}
