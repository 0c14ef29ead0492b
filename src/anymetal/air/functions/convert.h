// Conversions between numbers, which are calls in AIR: what is out of range saturates.
#include "air.h"

#define AIR_CONVERT(TO, TO_TYPE, TO_NAME, FROM, FROM_TYPE, FROM_NAME)                              \
  AIR(TO_TYPE, air_convert_##TO_NAME##_##FROM_NAME, "air.convert." TO "." FROM, FROM_TYPE value) { \
    return am_cast<TO_TYPE>(value);                                                                \
  }
#define AIR_FROM_EACH(TO, TO_TYPE, TO_NAME)                 \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "f.f32", float, f32)    \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "f.f16", half, f16)     \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "f.bf16", bfloat, bf16) \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "u.i1", bool, ui1)      \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "s.i8", char, si8)      \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "u.i8", uchar, ui8)     \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "s.i16", short, si16)   \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "u.i16", ushort, ui16)  \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "s.i32", int, si32)     \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "u.i32", uint, ui32)    \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "s.i64", long, si64)    \
  AIR_CONVERT(TO, TO_TYPE, TO_NAME, "u.i64", ulong, ui64)
AIR_FROM_EACH("f.f32", float, f32)
AIR_FROM_EACH("f.f16", half, f16)
AIR_FROM_EACH("f.bf16", bfloat, bf16)
AIR_FROM_EACH("u.i1", bool, ui1)
AIR_EACH_INTEGER(AIR_FROM_EACH)
