// The product of anymetal/matrix8x8.h: on the tensor cores for half and bfloat, which round their
// sums in a way of their own; for others in the documented order, each lane fetching its row and
// its columns.
//
// All 32 lanes must be there. Products and loads are calls that the engine answers once all is
// inlined (engines/cuda/matrices): it sees which products share an operand or follow each other,
// and gives the hardware four of them at once.
#pragma once
#include <anymetal/lanes.h>

// A product makes the kernel's lanes lie as tiles (anymetal/machine.h).
typedef float am_float_pair __attribute__((ext_vector_type(2)));
extern "C" __attribute__((const)) am_float_pair am_product_half(unsigned a, unsigned b, float c0,
                                                                float c1);
extern "C" __attribute__((const)) am_float_pair am_product_bfloat(unsigned a, unsigned b, float c0,
                                                                  float c1);
extern "C" __attribute__((const)) am_float_pair am_product_float(float a0, float a1, float b0,
                                                                 float b1, float c0, float c1);
// The lane's word of a matrix of 16-bit elements, which is `own`; the engine may fetch it in
// another way from `matrix`, whose rows (or columns, where it is transposed) lie `row_bytes` apart.
extern "C" __attribute__((pure)) unsigned am_matrix_word(const void* matrix,
                                                         unsigned long row_bytes, bool transposed,
                                                         unsigned own);

// The same for the two elements of a matrix of floats.
extern "C" __attribute__((pure)) am_float_pair am_matrix_pair(const void* matrix,
                                                              unsigned long row_bytes,
                                                              bool transposed, float own0,
                                                              float own1);

template <class T>
AM_INLINE unsigned am_pair_word(metal::vec<T, 2> pair) {
  T elements[2] = {pair[0], pair[1]};
  unsigned word;
  __builtin_memcpy(&word, elements, sizeof(word));
  return word;
}

template <class T>
AM_INLINE metal::vec<T, 2> am_matrix_loaded(const T* matrix, unsigned long elements_per_row,
                                            bool transposed, metal::vec<T, 2> own) {
  unsigned long row_bytes = elements_per_row * sizeof(T);
  if constexpr (sizeof(T) == 2) {
    unsigned word = am_matrix_word(matrix, row_bytes, transposed, am_pair_word(own));
    T elements[2];
    __builtin_memcpy(elements, &word, sizeof(word));
    return metal::vec<T, 2>(elements[0], elements[1]);
  } else {
    am_float_pair pair = am_matrix_pair(matrix, row_bytes, transposed, own[0], own[1]);
    return metal::vec<T, 2>(pair[0], pair[1]);
  }
}

template <class R, class A, class B, class C>
AM_INLINE metal::vec<R, 2> am_matrix_multiply(metal::vec<A, 2> a, metal::vec<B, 2> b,
                                              metal::vec<C, 2> c) {
  float c0 = float(c[0]), c1 = float(c[1]);
  am_float_pair sum;
  if constexpr (sizeof(A) == 2 && __is_same(A, B) && __is_same(A, half))
    sum = am_product_half(am_pair_word(a), am_pair_word(b), c0, c1);
  else if constexpr (sizeof(A) == 2 && __is_same(A, B))
    sum = am_product_bfloat(am_pair_word(a), am_pair_word(b), c0, c1);
  else
    sum = am_product_float(float(a[0]), float(a[1]), float(b[0]), float(b[1]), c0, c1);
  return metal::vec<R, 2>(R(sum[0]), R(sum[1]));
}
