// Votes, exchanges, reductions and scans of simdgroups and quadgroups.
#include "air.h"

#define AIR_VOTES(GROUP)                                                                          \
  AIR(bool, air_##GROUP##_all, "air." #GROUP "_all", bool x) { return metal::GROUP##_all(x); }    \
  AIR(bool, air_##GROUP##_any, "air." #GROUP "_any", bool x) { return metal::GROUP##_any(x); }    \
  AIR(bool, air_##GROUP##_first, "air." #GROUP "_is_first") { return metal::GROUP##_is_first(); } \
  AIR(ulong, air_##GROUP##_ballot, "air." #GROUP "_ballot.i64", bool x) {                         \
    return ulong(metal::GROUP##_vote::vote_t(metal::GROUP##_ballot(x)));                          \
  }                                                                                               \
  AIR(ulong, air_##GROUP##_active, "air." #GROUP "_active_threads_mask.i64") {                    \
    return ulong(metal::GROUP##_vote::vote_t(metal::GROUP##_active_threads_mask()));              \
  }
AIR_VOTES(simd)
AIR_VOTES(quad)

#define AIR_OF_LANE(GROUP, NAME, KIND, T, ID)                                  \
  AIR(T, air_##GROUP##_##NAME##_##ID, "air." #GROUP "_" #NAME "." KIND, T x) { \
    return metal::GROUP##_##NAME(x);                                           \
  }
#define AIR_FROM_LANE(GROUP, NAME, KIND, T, ID)                                          \
  AIR(T, air_##GROUP##_##NAME##_##ID, "air." #GROUP "_" #NAME "." KIND, T x, ushort n) { \
    return metal::GROUP##_##NAME(x, n);                                                  \
  }
#define AIR_FILLED(GROUP, NAME, KIND, T, ID)                                                \
  AIR(T, air_##GROUP##_##NAME##_##ID, "air." #GROUP "_" #NAME "." KIND, T x, T y, ushort n, \
      ushort modulo) {                                                                      \
    return metal::GROUP##_##NAME(x, y, n, modulo);                                          \
  }
#define AIR_OF_GROUP(GROUP, KIND, T, ID)                    \
  AIR_FROM_LANE(GROUP, broadcast, KIND, T, ID)              \
  AIR_OF_LANE(GROUP, broadcast_first, KIND, T, ID)          \
  AIR_FROM_LANE(GROUP, shuffle, KIND, T, ID)                \
  AIR_FROM_LANE(GROUP, shuffle_xor, KIND, T, ID)            \
  AIR_FROM_LANE(GROUP, shuffle_down, KIND, T, ID)           \
  AIR_FROM_LANE(GROUP, shuffle_up, KIND, T, ID)             \
  AIR_FROM_LANE(GROUP, shuffle_rotate_down, KIND, T, ID)    \
  AIR_FROM_LANE(GROUP, shuffle_rotate_up, KIND, T, ID)      \
  AIR_FILLED(GROUP, shuffle_and_fill_down, KIND, T, ID)     \
  AIR_FILLED(GROUP, shuffle_and_fill_up, KIND, T, ID)       \
  AIR_OF_LANE(GROUP, sum, KIND, T, ID)                      \
  AIR_OF_LANE(GROUP, product, KIND, T, ID)                  \
  AIR_OF_LANE(GROUP, min, KIND, T, ID)                      \
  AIR_OF_LANE(GROUP, max, KIND, T, ID)                      \
  AIR_OF_LANE(GROUP, prefix_inclusive_sum, KIND, T, ID)     \
  AIR_OF_LANE(GROUP, prefix_exclusive_sum, KIND, T, ID)     \
  AIR_OF_LANE(GROUP, prefix_inclusive_product, KIND, T, ID) \
  AIR_OF_LANE(GROUP, prefix_exclusive_product, KIND, T, ID)
#define AIR_BITWISE(GROUP, KIND, T, ID) \
  AIR_OF_LANE(GROUP, and, KIND, T, ID)  \
  AIR_OF_LANE(GROUP, or, KIND, T, ID)   \
  AIR_OF_LANE(GROUP, xor, KIND, T, ID)

#define AIR_OF_BOTH(KIND, T, ID)  \
  AIR_OF_GROUP(simd, KIND, T, ID) \
  AIR_OF_GROUP(quad, KIND, T, ID)
#define AIR_OF_BOTH_INTEGERS(KIND, T, ID) \
  AIR_OF_BOTH(KIND, T, ID)                \
  AIR_BITWISE(simd, KIND, T, ID)          \
  AIR_BITWISE(quad, KIND, T, ID)
AIR_OF_BOTH("f32", float, f32)
AIR_OF_BOTH("f16", half, f16)
AIR_OF_BOTH_INTEGERS("s.i8", char, si8)
AIR_OF_BOTH_INTEGERS("u.i8", uchar, ui8)
AIR_OF_BOTH_INTEGERS("s.i16", short, si16)
AIR_OF_BOTH_INTEGERS("u.i16", ushort, ui16)
AIR_OF_BOTH_INTEGERS("s.i32", int, si32)
AIR_OF_BOTH_INTEGERS("u.i32", uint, ui32)
