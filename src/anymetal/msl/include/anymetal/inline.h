// What is always inlined: a kernel ends up as one function, with every point where a thread waits.
#pragma once
#define AM_INLINE inline __attribute__((always_inline))
#define AM_ALWAYS __attribute__((always_inline))  // for a lambda
