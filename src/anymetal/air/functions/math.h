// Math on float and half. Plain and precise:: functions are air.NAME, fast:: ones air.fast_NAME;
// there is none on bfloat.
#include "air.h"

#define AIR_1(NAME)                                                                     \
  AIR(float, air_##NAME##_f32, "air." #NAME ".f32", float x) { return metal::NAME(x); } \
  AIR(half, air_##NAME##_f16, "air." #NAME ".f16", half x) { return metal::NAME(x); }
#define AIR_FAST_1(NAME)                                                 \
  AIR(float, air_fast_##NAME##_f32, "air.fast_" #NAME ".f32", float x) { \
    return metal::fast::NAME(x);                                         \
  }                                                                      \
  AIR(half, air_fast_##NAME##_f16, "air.fast_" #NAME ".f16", half x) { return metal::NAME(x); }
#define AIR_2(NAME)                                                     \
  AIR(float, air_##NAME##_f32, "air." #NAME ".f32", float x, float y) { \
    return metal::NAME(x, y);                                           \
  }                                                                     \
  AIR(half, air_##NAME##_f16, "air." #NAME ".f16", half x, half y) { return metal::NAME(x, y); }
#define AIR_FAST_2(NAME)                                                          \
  AIR(float, air_fast_##NAME##_f32, "air.fast_" #NAME ".f32", float x, float y) { \
    return metal::fast::NAME(x, y);                                               \
  }                                                                               \
  AIR(half, air_fast_##NAME##_f16, "air.fast_" #NAME ".f16", half x, half y) {    \
    return metal::NAME(x, y);                                                     \
  }
#define AIR_3(NAME)                                                              \
  AIR(float, air_##NAME##_f32, "air." #NAME ".f32", float x, float y, float z) { \
    return metal::NAME(x, y, z);                                                 \
  }                                                                              \
  AIR(half, air_##NAME##_f16, "air." #NAME ".f16", half x, half y, half z) {     \
    return metal::NAME(x, y, z);                                                 \
  }
#define AIR_FAST_3(NAME)                                                                   \
  AIR(float, air_fast_##NAME##_f32, "air.fast_" #NAME ".f32", float x, float y, float z) { \
    return metal::NAME(x, y, z);                                                           \
  }                                                                                        \
  AIR(half, air_fast_##NAME##_f16, "air.fast_" #NAME ".f16", half x, half y, half z) {     \
    return metal::NAME(x, y, z);                                                           \
  }

AM_MATH_UNARY(AIR_1)
AM_MATH_UNARY(AIR_FAST_1)
AM_MATH_BINARY(AIR_2)
AM_MATH_BINARY(AIR_FAST_2)
AM_MATH_TERNARY(AIR_3)
AM_MATH_TERNARY(AIR_FAST_3)
AIR_1(saturate)
AIR_1(sign)
AIR_2(step)
AIR_3(clamp)
AIR_3(mix)
AIR_3(smoothstep)
AIR(float, air_fast_saturate_f32, "air.fast_saturate.f32", float x) { return metal::saturate(x); }
AIR_FAST_3(clamp)

// A second result goes where a pointer says.
#define AIR_OUT(NAME, OUT, KIND, T)                                             \
  AIR(T, air_##NAME##_##T, "air." #NAME "." KIND, T x, OUT* second) {           \
    return metal::NAME(x, *second);                                             \
  }                                                                             \
  AIR(T, air_fast_##NAME##_##T, "air.fast_" #NAME "." KIND, T x, OUT* second) { \
    return metal::NAME(x, *second);                                             \
  }
AIR_OUT(sincos, float, "f32", float)
AIR_OUT(sincos, half, "f16", half)
AIR_OUT(modf, float, "f32", float)
AIR_OUT(modf, half, "f16", half)
AIR_OUT(frexp, int, "f32", float)
AIR_OUT(frexp, int, "f16", half)
AIR(float, air_ldexp_f32, "air.ldexp.f32", float x, int k) { return metal::ldexp(x, k); }
AIR(half, air_ldexp_f16, "air.ldexp.f16", half x, int k) { return metal::ldexp(x, k); }
AIR(float, air_fast_ldexp_f32, "air.fast_ldexp.f32", float x, int k) { return metal::ldexp(x, k); }
AIR(int, air_ilogb_f32, "air.ilogb.f32", float x) { return metal::ilogb(x); }
AIR(int, air_ilogb_f16, "air.ilogb.f16", half x) { return metal::ilogb(x); }

// The parts of vectors come one by one.
AIR(float, air_dot_2_f32, "am.air.dot.v2f32", float a, float b, float c, float d) {
  return metal::dot(float2(a, b), float2(c, d));
}
AIR(float, air_dot_3_f32, "am.air.dot.v3f32", float a, float b, float c, float d, float e,
    float f) {
  return metal::dot(float3(a, b, c), float3(d, e, f));
}
AIR(float, air_dot_4_f32, "am.air.dot.v4f32", float a, float b, float c, float d, float e, float f,
    float g, float h) {
  return metal::dot(float4(a, b, c, d), float4(e, f, g, h));
}
AIR(half, air_dot_2_f16, "am.air.dot.v2f16", half a, half b, half c, half d) {
  return metal::dot(half2(a, b), half2(c, d));
}
AIR(half, air_dot_3_f16, "am.air.dot.v3f16", half a, half b, half c, half d, half e, half f) {
  return metal::dot(half3(a, b, c), half3(d, e, f));
}
AIR(half, air_dot_4_f16, "am.air.dot.v4f16", half a, half b, half c, half d, half e, half f, half g,
    half h) {
  return metal::dot(half4(a, b, c, d), half4(e, f, g, h));
}
