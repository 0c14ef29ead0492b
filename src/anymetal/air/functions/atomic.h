// Atomic operations on device (global) and threadgroup (local) memory: relaxed, as all in Metal.
// Order, scope and the flag for volatile change nothing here.
#include "air.h"

#define AIR_ATOMIC_ACCESS(SPACE, KIND, T, ID)                                                     \
  AIR(T, air_load_##SPACE##_##ID, "air.atomic." #SPACE ".load." KIND, volatile T* place, uint,    \
      uint, bool) {                                                                               \
    T value;                                                                                      \
    __atomic_load(place, &value, __ATOMIC_RELAXED);                                               \
    return value;                                                                                 \
  }                                                                                               \
  AIR(void, air_store_##SPACE##_##ID, "air.atomic." #SPACE ".store." KIND, volatile T* place,     \
      T value, uint, uint, bool) {                                                                \
    __atomic_store(place, &value, __ATOMIC_RELAXED);                                              \
  }                                                                                               \
  AIR(T, air_xchg_##SPACE##_##ID, "air.atomic." #SPACE ".xchg." KIND, volatile T* place, T value, \
      uint, uint, bool) {                                                                         \
    T before;                                                                                     \
    __atomic_exchange(place, &value, &before, __ATOMIC_RELAXED);                                  \
    return before;                                                                                \
  }                                                                                               \
  AIR(T, air_cmpxchg_##SPACE##_##ID, "air.atomic." #SPACE ".cmpxchg.weak." KIND,                  \
      volatile T* place, T* expected, T value, uint, uint, uint, bool) {                          \
    T seen = *expected;                                                                           \
    if (!__atomic_compare_exchange(place, &seen, &value, true, __ATOMIC_RELAXED,                  \
                                   __ATOMIC_RELAXED))                                             \
      *expected = seen;                                                                           \
    return seen;                                                                                  \
  }
#define AIR_FETCH(SPACE, NAME, KIND, T, ID)                                                       \
  AIR(T, air_##NAME##_##SPACE##_##ID, "air.atomic." #SPACE "." #NAME "." KIND, volatile T* place, \
      T value, uint, uint, bool) {                                                                \
    return __atomic_fetch_##NAME(place, value, __ATOMIC_RELAXED);                                 \
  }
#define AIR_MODIFY(SPACE, NAME, KIND, T, ID)                                      \
  AIR(void, air_##NAME##_##SPACE##_##ID, "air.atomic." #SPACE "." #NAME "." KIND, \
      volatile T* place, T value, uint, uint, bool) {                             \
    __atomic_fetch_##NAME(place, value, __ATOMIC_RELAXED);                        \
  }
#define AIR_FETCH_INTEGERS(SPACE, KIND, T, ID) \
  AIR_FETCH(SPACE, add, KIND, T, ID)           \
  AIR_FETCH(SPACE, sub, KIND, T, ID)           \
  AIR_FETCH(SPACE, and, KIND, T, ID)           \
  AIR_FETCH(SPACE, or, KIND, T, ID)            \
  AIR_FETCH(SPACE, xor, KIND, T, ID)           \
  AIR_FETCH(SPACE, min, KIND, T, ID)           \
  AIR_FETCH(SPACE, max, KIND, T, ID)
#define AIR_ATOMICS(SPACE)                       \
  AIR_ATOMIC_ACCESS(SPACE, "i8", uchar, i8)      \
  AIR_ATOMIC_ACCESS(SPACE, "i32", uint, i32)     \
  AIR_ATOMIC_ACCESS(SPACE, "f32", float, f32)    \
  AIR_FETCH(SPACE, add, "f32", float, f32)       \
  AIR_FETCH(SPACE, sub, "f32", float, f32)       \
  AIR_FETCH_INTEGERS(SPACE, "s.i32", int, si32)  \
  AIR_FETCH_INTEGERS(SPACE, "u.i32", uint, ui32) \
  AIR_MODIFY(SPACE, min, "u.i64", ulong, ui64)   \
  AIR_MODIFY(SPACE, max, "u.i64", ulong, ui64)
AIR_ATOMICS(global)
AIR_ATOMICS(local)
