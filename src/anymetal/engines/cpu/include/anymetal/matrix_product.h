// The product of anymetal/matrix8x8.h: the lanes leave their elements where they belong in the
// matrix; the leader multiplies whole rows, eight columns at a time.
#pragma once
#include <anymetal/lanes.h>

// One row as floats.
template <class T>
AM_INLINE am_wide<float, 8> am_matrix_load_row(const T* row) {
  return __builtin_convertvector((am_load_wide<T, 8>(row)), am_wide<float, 8>);
}

template <class R, class A, class B, class C>
AM_INLINE void am_matrix_compute(const A* a, const B* b, const C* c, R* out) {
  am_wide<float, 8> rows_of_b[8];
#pragma clang loop unroll(full)
  for (int k = 0; k < 8; ++k) rows_of_b[k] = am_matrix_load_row(b + 8 * k);
#pragma clang loop unroll(full)
  for (int row = 0; row < 8; ++row) {
    am_wide<float, 8> left = am_matrix_load_row(a + 8 * row);
    am_wide<float, 8> sum = am_matrix_load_row(c + 8 * row);
#pragma clang loop unroll(full)
    for (int k = 0; k < 8; ++k) {
      am_wide<float, 8> factor = left[k];
      sum = __builtin_elementwise_fma(factor, rows_of_b[k], sum);
    }
    am_store_wide<R, 8>(out + 8 * row, __builtin_convertvector(sum, am_wide<R, 8>));
  }
}

template <class T>
AM_INLINE metal::vec<T, 2> am_matrix_loaded(const T*, unsigned long, bool, metal::vec<T, 2> own) {
  return own;
}

// The three matrices while they are gathered.
template <class A, class B, class C>
struct am_matrix_operands {
  metal::vec<A, 2> a[32];
  metal::vec<B, 2> b[32];
  metal::vec<C, 2> c[32];
};

// What lanes that are not there would have brought counts as zero.
template <class A, class B, class C>
AM_INLINE void am_matrix_clear(am_matrix_operands<A, B, C>* operands, unsigned active) {
  for (unsigned lane = 0; lane < AM_SIMD_WIDTH; ++lane) {
    if (active >> lane & 1) continue;
    unsigned pair = am_matrix_pair(lane);
    operands->a[pair] = metal::vec<A, 2>(A(0));
    operands->b[pair] = metal::vec<B, 2>(B(0));
    operands->c[pair] = metal::vec<C, 2>(C(0));
  }
}

// This lane's two elements of a * b + c, for an engine that runs all lanes at once: it writes the
// product in vectors in place of these calls (passes/simdgroup/matrix.py), rounding as above. Other
// engines never come here.
extern "C" __attribute__((const)) bool am_all_lanes_at_once();
template <class R, class A, class B, class C>
__attribute__((const, convergent)) R am_matrix_first(A a0, A a1, B b0, B b1, C c0, C c1);
template <class R, class A, class B, class C>
__attribute__((const, convergent)) R am_matrix_second(A a0, A a1, B b0, B b1, C c0, C c1);

// This lane's two elements of a * b + c.
template <class R, class A, class B, class C>
AM_INLINE metal::vec<R, 2> am_matrix_multiply(metal::vec<A, 2> a, metal::vec<B, 2> b,
                                              metal::vec<C, 2> c) {
  if (am_all_lanes_at_once())
    return metal::vec<R, 2>(am_matrix_first<R>(a.x, a.y, b.x, b.y, c.x, c.y),
                            am_matrix_second<R>(a.x, a.y, b.x, b.y, c.x, c.y));
  typedef am_matrix_operands<A, B, C> Operands;
  return am_gather<Operands, metal::vec<R, 2>>(
      [=](Operands* operands, unsigned lane) AM_ALWAYS {
        unsigned pair = am_matrix_pair(lane);
        operands->a[pair] = a;
        operands->b[pair] = b;
        operands->c[pair] = c;
        return pair;
      },
      [](Operands* operands, unsigned active, void* results) AM_ALWAYS {
        if (active != ~0u) am_matrix_clear(operands, active);
        am_matrix_compute<R>(reinterpret_cast<const A*>(operands->a),
                             reinterpret_cast<const B*>(operands->b),
                             reinterpret_cast<const C*>(operands->c), static_cast<R*>(results));
      });
}
