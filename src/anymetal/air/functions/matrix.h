// 8x8 matrices of a simdgroup. In AIR a matrix is <64 x T>, of which a lane has the first two: here
// these two come one by one, and results go where a pointer says (air/vectors.py).
#include "air.h"

#define AIR_PRODUCT(R, R_TYPE, A, A_TYPE, B, B_TYPE)                                             \
  AIR(void, air_product_##R##_##A##_##B,                                                         \
      "am.air.simdgroup_matrix_8x8_multiply_accumulate.v64" #R ".v64" #A ".v64" #B ".v64" #R,    \
      R_TYPE* out, A_TYPE a0, A_TYPE a1, B_TYPE b0, B_TYPE b1, R_TYPE c0, R_TYPE c1) {           \
    auto sum =                                                                                   \
        am_matrix_multiply<R_TYPE>(metal::vec<A_TYPE, 2>(a0, a1), metal::vec<B_TYPE, 2>(b0, b1), \
                                   metal::vec<R_TYPE, 2>(c0, c1));                               \
    out[0] = sum.x;                                                                              \
    out[1] = sum.y;                                                                              \
  }
#define AIR_PRODUCTS_OF(R, R_TYPE, A, A_TYPE)   \
  AIR_PRODUCT(R, R_TYPE, A, A_TYPE, f32, float) \
  AIR_PRODUCT(R, R_TYPE, A, A_TYPE, f16, half)  \
  AIR_PRODUCT(R, R_TYPE, A, A_TYPE, bf16, bfloat)
#define AIR_PRODUCTS(R, R_TYPE)          \
  AIR_PRODUCTS_OF(R, R_TYPE, f32, float) \
  AIR_PRODUCTS_OF(R, R_TYPE, f16, half)  \
  AIR_PRODUCTS_OF(R, R_TYPE, bf16, bfloat)
AIR_PRODUCTS(f32, float)
AIR_PRODUCTS(f16, half)
AIR_PRODUCTS(bf16, bfloat)

// Up to AIR 2.7 a place is given by elements in a row, origin and transpose; from 2.8 on by the
// strides of x and y, and the origin.
#define AIR_MEMORY(KIND, T)                                                                      \
  AIR(void, air_matrix_load_##T, "am.air.simdgroup_matrix_8x8_load.v64" #KIND, T* out,           \
      const T* source, ulong row, ulong x, ulong y, bool transpose) {                            \
    ulong2 place = metal::am_matrix_place(row, ulong2(x, y), transpose);                         \
    out[0] = source[place.x];                                                                    \
    out[1] = source[place.x + place.y];                                                          \
  }                                                                                              \
  AIR(void, air_matrix_store_##T, "am.air.simdgroup_matrix_8x8_store.v64" #KIND, const T* in,    \
      T* target, ulong row, ulong x, ulong y, bool transpose) {                                  \
    ulong2 place = metal::am_matrix_place(row, ulong2(x, y), transpose);                         \
    target[place.x] = in[0];                                                                     \
    target[place.x + place.y] = in[1];                                                           \
  }                                                                                              \
  AIR(void, air_matrix_load_strided_##T, "am.air.simdgroup_matrix_8x8_load.strided.v64" #KIND,   \
      T* out, const T* source, ulong step_x, ulong step_y, ulong x, ulong y) {                   \
    ulong place =                                                                                \
        (x + am_matrix_column(am_lane())) * step_x + (y + am_matrix_row(am_lane())) * step_y;    \
    out[0] = source[place];                                                                      \
    out[1] = source[place + step_x];                                                             \
  }                                                                                              \
  AIR(void, air_matrix_store_strided_##T, "am.air.simdgroup_matrix_8x8_store.strided.v64" #KIND, \
      const T* in, T* target, ulong step_x, ulong step_y, ulong x, ulong y) {                    \
    ulong place =                                                                                \
        (x + am_matrix_column(am_lane())) * step_x + (y + am_matrix_row(am_lane())) * step_y;    \
    target[place] = in[0];                                                                       \
    target[place + step_x] = in[1];                                                              \
  }                                                                                              \
  AIR(void, air_matrix_diagonal_##T, "am.air.simdgroup_matrix_8x8_init_diag.v64" #KIND, T* out,  \
      T value) {                                                                                 \
    metal::simdgroup_matrix<T, 8, 8> matrix(value);                                              \
    out[0] = matrix.thread_elements().x;                                                         \
    out[1] = matrix.thread_elements().y;                                                         \
  }                                                                                              \
  AIR(void, air_matrix_filled_##T, "am.air.simdgroup_matrix_8x8_init_filled.v64" #KIND, T* out,  \
      T value) {                                                                                 \
    out[0] = value;                                                                              \
    out[1] = value;                                                                              \
  }
AIR_MEMORY(f32, float)
AIR_MEMORY(f16, half)
AIR_MEMORY(bf16, bfloat)
