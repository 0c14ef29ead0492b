// The product of anymetal/matrix8x8.h: on the tensor cores for half and bfloat, which round their
// sums in a way of their own; for others in the documented order, each lane fetching its row and
// its columns.
//
// All 32 lanes must be there. The lower half of the 16x8 tile that the hardware multiplies is zero.
#pragma once
#include <anymetal/lanes.h>

// Marks the kernel for the engine: lanes lie as tiles.
extern "C" __attribute__((const)) unsigned am_tile(unsigned word);

template <class T>
AM_INLINE unsigned am_pair_word(metal::vec<T, 2> pair) {
  T elements[2] = {pair[0], pair[1]};
  unsigned word;
  __builtin_memcpy(&word, elements, sizeof(word));
  return am_tile(word);
}

// The two 16-bit elements of each lane multiplied: {row, row}, accumulated in c0 and c1.
template <class T>
AM_INLINE void am_multiply_tiles(unsigned a, unsigned b, float& c0, float& c1) {
  unsigned zero = 0, columns;
  float low0 = 0, low1 = 0, none0, none1;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(columns) : "r"(b));
#define AM_MMA(TYPE)                                                 \
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE \
               ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"  \
               : "=f"(c0), "=f"(c1), "=f"(none0), "=f"(none1)        \
               : "r"(a), "r"(zero), "r"(columns), "f"(c0), "f"(c1), "f"(low0), "f"(low1))
  if constexpr (__is_same(T, half))
    AM_MMA("f16");
  else
    AM_MMA("bf16");
#undef AM_MMA
}

template <class R, class A, class B, class C>
AM_INLINE metal::vec<R, 2> am_matrix_multiply(metal::vec<A, 2> a, metal::vec<B, 2> b,
                                              metal::vec<C, 2> c) {
  float c0 = float(c[0]), c1 = float(c[1]);
  if constexpr (sizeof(A) == 2 && __is_same(A, B)) {
    am_multiply_tiles<A>(am_pair_word(a), am_pair_word(b), c0, c1);
  } else {
    unsigned lane = am_lane(), column = lane & 9;  // the bits of a lane that say its columns
    unsigned row = lane & 22;
    float a0 = float(a[0]), a1 = float(a[1]), b0 = float(b[0]), b1 = float(b[1]);
#pragma clang loop unroll(full)
    for (unsigned k = 0; k < 8; ++k) {
      unsigned pair = (k >> 2 & 1) << 3 | (k >> 1 & 1);  // the lane bits of column k
      unsigned line = (k >> 2 & 1) << 4 | (k & 3) << 1;  // the lane bits of row k
      float factor = am_shuffled(k & 1 ? a1 : a0, row | pair, ~0u);
      c0 = __builtin_fmaf(factor, am_shuffled(b0, line | column, ~0u), c0);
      c1 = __builtin_fmaf(factor, am_shuffled(b1, line | column, ~0u), c1);
    }
  }
  return metal::vec<R, 2>(R(c0), R(c1));
}
