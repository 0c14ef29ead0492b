// Functions on integers. AIR has names of its own for some.
#include "air.h"

#define AIR_INTEGER_1(AIR_NAME, NAME, KIND, T, ID) \
  AIR(T, air_##NAME##_##ID, "air." AIR_NAME "." KIND, T x) { return metal::NAME(x); }
#define AIR_INTEGER_2(AIR_NAME, NAME, KIND, T, ID) \
  AIR(T, air_##NAME##_##ID, "air." AIR_NAME "." KIND, T x, T y) { return metal::NAME(x, y); }
#define AIR_INTEGER_3(AIR_NAME, NAME, KIND, T, ID)                     \
  AIR(T, air_##NAME##_##ID, "air." AIR_NAME "." KIND, T x, T y, T z) { \
    return metal::NAME(x, y, z);                                       \
  }
#define AIR_OF_EACH(KIND, T, ID)                  \
  AIR_INTEGER_1("abs", abs, KIND, T, ID)          \
  AIR_INTEGER_2("abs_diff", absdiff, KIND, T, ID) \
  AIR_INTEGER_2("add_sat", addsat, KIND, T, ID)   \
  AIR_INTEGER_2("sub_sat", subsat, KIND, T, ID)   \
  AIR_INTEGER_3("clamp", clamp, KIND, T, ID)      \
  AIR_INTEGER_2("hadd", hadd, KIND, T, ID)        \
  AIR_INTEGER_2("rhadd", rhadd, KIND, T, ID)      \
  AIR_INTEGER_3("mad_hi", madhi, KIND, T, ID)     \
  AIR_INTEGER_3("mad_sat", madsat, KIND, T, ID)   \
  AIR_INTEGER_2("mul_hi", mulhi, KIND, T, ID)     \
  AIR_INTEGER_2("max", max, KIND, T, ID)          \
  AIR_INTEGER_2("min", min, KIND, T, ID)          \
  AIR_INTEGER_3("max3", max3, KIND, T, ID)        \
  AIR_INTEGER_3("min3", min3, KIND, T, ID)        \
  AIR_INTEGER_3("median3", median3, KIND, T, ID)
AIR_EACH_INTEGER(AIR_OF_EACH)

// These look at bits alone, and know no sign. The flag of the first two says that zero does not
// occur.
#define AIR_BITS(KIND, T)                                                                   \
  AIR(T, air_clz_##T, "air.clz." KIND, T x, bool) { return metal::clz(x); }                 \
  AIR(T, air_ctz_##T, "air.ctz." KIND, T x, bool) { return metal::ctz(x); }                 \
  AIR(T, air_popcount_##T, "air.popcount." KIND, T x) { return metal::popcount(x); }        \
  AIR(T, air_reverse_##T, "air.reverse_bits." KIND, T x) { return metal::reverse_bits(x); } \
  AIR(T, air_rotate_##T, "air.rotate." KIND, T x, T y) { return metal::rotate(x, y); }
AIR_BITS("i8", uchar)
AIR_BITS("i16", ushort)
AIR_BITS("i32", uint)
AIR_BITS("i64", ulong)
