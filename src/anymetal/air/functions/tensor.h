// Metal 4's products of matrices that a simdgroup holds in registers or that lie in memory
// (matmul2d).
//
// Which lane holds which element is the implementation's choice. Here it is what MLX's kernels
// assume: 16x16 fragments of the operand as it is stored, one behind the other along its long side;
// of a fragment a lane has four neighbouring columns in two rows, eight apart.
#include "air.h"

// Type codes end in the number of bits of an element.
AM_INLINE ulong air_tensor_bytes(uint type) { return (type & 0xff) / 8; }

#define AIR_DESCRIPTION int operand, int m, int n, int k, uchar, uchar, uchar, int

// Elements of one lane: operand 0 is the left, 1 the right one, 2 the destination.
AM_INLINE int air_tensor_count(int operand, int m, int n, int k) {
  return (operand == 0 ? m * k : operand == 1 ? n * k : m * n) / AM_SIMD_WIDTH;
}
AM_INLINE uint air_tensor_type(int operand, uint left, uint right, uint destination) {
  return operand == 0 ? left : operand == 1 ? right : destination;
}

AIR(ulong, air_tensor_data_size, "__tensorops_impl_matmul2d_op_cooperative_tensor_data_size",
    AIR_DESCRIPTION, uint left, uint right, uint destination, int) {
  return air_tensor_count(operand, m, n, k) *
         air_tensor_bytes(air_tensor_type(operand, left, right, destination));
}
AIR(void, air_tensor_init, "__tensorops_impl_matmul2d_op_cooperative_tensor_init", AIR_DESCRIPTION,
    char* data, uint left, uint right, uint destination, int) {
  ulong bytes = air_tensor_count(operand, m, n, k) *
                air_tensor_bytes(air_tensor_type(operand, left, right, destination));
  for (ulong i = 0; i < bytes; ++i) data[i] = 0;
}
AIR(ushort, air_tensor_elements, "__tensorops_impl_matmul2d_op_cooperative_tensor_num_elements",
    AIR_DESCRIPTION, char*, uint, uint, int) {
  return air_tensor_count(operand, m, n, k);
}
// Without an index (-1) the start of the data.
AIR(char*, air_tensor_element,
    "__tensorops_impl_matmul2d_op_cooperative_tensor_get_element_pointer", AIR_DESCRIPTION,
    char* data, short index, uint left, uint right, uint destination) {
  return data + (index < 0 ? 0 : index) *
                    air_tensor_bytes(air_tensor_type(operand, left, right, destination));
}

AM_INLINE int air_fragment_row(uint lane) { return (lane / 4 & 4) | (lane / 2 & 3); }
AM_INLINE int air_fragment_column(uint lane) { return 4 * ((lane / 4 & 2) | (lane & 1)); }
// The lane that has an element of a fragment.
AM_INLINE uint air_fragment_lane(int row, int column) {
  return (column / 4 & 1) | (row & 3) << 1 | (column / 8 & 1) << 3 | (row & 4) << 2;
}

// An element of a stored matrix, from the lane that has it. `chosen` of its elements may be the one
// that is meant, `step` apart: lanes that ask want different ones, and a lane gives one to all.
template <class T>
AM_INLINE float air_tensor_at(const T* data, int across, int row, int column, int first, int chosen,
                              int step) {
  const T* fragment = data + 8 * (row / 16 * across + column / 16);
  uint lane = air_fragment_lane(row & 7, column & 15);
  int wanted = (row & 8) / 2 + (column & 3);
  float found = 0;
  for (int i = 0; i < chosen; ++i) {
    float value = am_read_lane<32>(float(fragment[first + i * step]), lane);
    found = first + i * step == wanted ? value : found;
  }
  return found;
}

// Where an element of an operand lies in the stored matrix: for lane l of the simdgroup.
AM_INLINE int air_tensor_row(int across, int index) {
  return 16 * (index / 8 / across) + air_fragment_row(am_lane()) + (index & 4) * 2;
}
AM_INLINE int air_tensor_column(int across, int index) {
  return 16 * (index / 8 % across) + air_fragment_column(am_lane()) + (index & 3);
}
// The fragments of an operand that stand beside one another.
AM_INLINE int air_tensor_across(int operand, int m, int n, int k, bool left_down,
                                bool right_along) {
  return (operand == 0 ? (left_down ? m : k) : operand == 1 ? (right_along ? k : n) : n) / 16;
}

// ---- Tensors in memory
// ---------------------------------------------------------------------------

// Lengths and then strides follow, one for each dimension; dimension 0 is the innermost one.
struct air_view {
  char* data;
  int bytes;  // of an element
  int sizes[1];
};
AM_INLINE int* air_strides(air_view* view, ushort rank) { return view->sizes + rank; }

AIR(ushort, air_view_size, "air.get_descriptor_size_tensor", ushort rank, ushort) {
  return ushort(16 + 8 * rank);
}
// Types are numbered: float, half, bfloat.
#define AIR_VIEW(SPACE)                                                                           \
  AIR(void, air_view_init_##SPACE, "air.init_strided_private_tensor.i32." #SPACE, air_view* view, \
      ushort rank, char* data, const int* lengths, const int* strides, uchar type) {              \
    view->data = data;                                                                            \
    view->bytes = type == 0 ? 4 : 2;                                                              \
    for (int i = 0; i < rank; ++i) {                                                              \
      view->sizes[i] = lengths[i];                                                                \
      air_strides(view, rank)[i] = strides[i];                                                    \
    }                                                                                             \
  }
AIR_VIEW(global)
AIR_VIEW(local)
AIR(void, air_view_slice, "air.slice_private_tensor_private_tensor.s.i32", air_view* part,
    air_view* whole, ushort rank, const int* origin, const int* lengths) {
  char* data = whole->data;
  part->bytes = whole->bytes;
  for (int i = 0; i < rank; ++i) {
    int stride = air_strides(whole, rank)[i];
    data += long(origin[i]) * stride * whole->bytes;
    part->sizes[i] = lengths[i];
    air_strides(part, rank)[i] = stride;
  }
  part->data = data;
}
AIR(int, air_view_extent, "air.get_extent_private_tensor.i32", const air_view* view, ushort,
    ushort dimension) {
  return view->sizes[dimension];
}

// A matrix in memory. What lies outside is read as zero, and not stored.
template <class T>
struct air_memory {
  air_view* view;

  AM_INLINE bool has(int row, int column) const {
    return column < view->sizes[0] && row < view->sizes[1];
  }
  AM_INLINE T* at(int row, int column) const {
    return (T*)view->data + long(column) * view->sizes[2] + long(row) * view->sizes[3];
  }
  AM_INLINE float read(int row, int column) const {
    return has(row, column) ? float(*at(row, column)) : 0.0f;
  }
};

#define AIR_TENSOR_DESCRIPTION \
  int operand, int m, int n, int k, uchar left_down, uchar right_along, uchar, int
AIR(void, air_tensor_coordinate, "__tensorops_impl_matmul2d_op_cooperative_tensor_get_coordinate",
    AIR_TENSOR_DESCRIPTION, char*, short index, int* coordinate, uint, int, uint, uint, uint) {
  int across = air_tensor_across(operand, m, n, k, left_down, right_along);
  coordinate[0] = air_tensor_column(across, index);
  coordinate[1] = air_tensor_row(across, index);
}
#define AIR_TENSOR_MOVES(SPACE, NAME, T)                                                   \
  AIR(void, air_tensor_load_##SPACE##_##NAME,                                              \
      "__tensorops_impl_matmul2d_op_cooperative_tensor_load_" #SPACE "_" #NAME,            \
      AIR_TENSOR_DESCRIPTION, T* data, air_view* view, int, int, uint, uint, uint, int) {  \
    int across = air_tensor_across(operand, m, n, k, left_down, right_along);              \
    for (int i = 0; i < air_tensor_count(operand, m, n, k); ++i) {                         \
      int row = air_tensor_row(across, i), column = air_tensor_column(across, i);          \
      air_memory<T> memory{view};                                                          \
      data[i] = memory.has(row, column) ? *memory.at(row, column) : T(0);                  \
    }                                                                                      \
  }                                                                                        \
  AIR(void, air_tensor_store_##SPACE##_##NAME,                                             \
      "__tensorops_impl_matmul2d_op_cooperative_tensor_store_" #SPACE "_" #NAME,           \
      AIR_TENSOR_DESCRIPTION, const T* data, air_view* view, int, uint, uint, uint, int) { \
    int across = air_tensor_across(operand, m, n, k, left_down, right_along);              \
    for (int i = 0; i < air_tensor_count(operand, m, n, k); ++i) {                         \
      int row = air_tensor_row(across, i), column = air_tensor_column(across, i);          \
      air_memory<T> memory{view};                                                          \
      if (memory.has(row, column)) *memory.at(row, column) = data[i];                      \
    }                                                                                      \
  }
#define AIR_TENSOR_MOVES_OF(SPACE)    \
  AIR_TENSOR_MOVES(SPACE, f32, float) \
  AIR_TENSOR_MOVES(SPACE, f16, half)  \
  AIR_TENSOR_MOVES(SPACE, b16, bfloat)
AIR_TENSOR_MOVES_OF(dv)
AIR_TENSOR_MOVES_OF(tg)

// ---- Products
// ------------------------------------------------------------------------------------

struct air_product {
  int m, n, k;
  bool transpose_left, transpose_right, relaxed;
  int mode;
};

// An element of the left operand: in row `top`, the first or the second (`i`) of those of a lane.
template <class T>
AM_INLINE float air_left_at(const T* left, const air_product* product, int top, int k, int i) {
  int across = (product->transpose_left ? product->m : product->k) / 16;
  return product->transpose_left ? air_tensor_at(left, across, k, top, (k & 8) / 2, 4, 1)
                                 : air_tensor_at(left, across, top, k, 4 * i + (k & 3), 1, 1);
}
template <class T>
AM_INLINE float air_left_at(air_memory<T> left, const air_product* product, int top, int k, int) {
  return product->transpose_left ? left.read(k, top) : left.read(top, k);
}
// Likewise of the right one: in a column of the result.
template <class T>
AM_INLINE float air_right_at(const T* right, const air_product* product, int column, int k, int i) {
  int across = (product->transpose_right ? product->k : product->n) / 16;
  return product->transpose_right ? air_tensor_at(right, across, column, k, k & 3, 2, 4)
                                  : air_tensor_at(right, across, k, column, (k & 8) / 2 + i, 1, 1);
}
template <class T>
AM_INLINE float air_right_at(air_memory<T> right, const air_product* product, int column, int k,
                             int) {
  return product->transpose_right ? right.read(column, k) : right.read(k, column);
}

// One fused multiply-add after the other along k, in float.
template <class L, class R, class D>
AM_INLINE void air_tensor_run(const air_product* product, L left, R right, D* out) {
  int blocks = product->m * product->n / 256, across = product->n / 16;
  int row = air_fragment_row(am_lane()), column = air_fragment_column(am_lane());
  for (int block = 0; block < blocks; ++block, out += 8) {
    int top = 16 * (block / across) + row, start = 16 * (block % across) + column;
    float sums[8], a[2], b[4];
    for (int i = 0; i < 8; ++i) sums[i] = product->mode ? float(out[i]) : 0.0f;
    for (int k = 0; k < product->k; ++k) {
      for (int i = 0; i < 2; ++i) a[i] = air_left_at(left, product, top + 8 * i, k, i);
      for (int i = 0; i < 4; ++i) b[i] = air_right_at(right, product, start + i, k, i);
      for (int i = 0; i < 8; ++i) sums[i] = __builtin_fmaf(a[i / 4], b[i % 4], sums[i]);
    }
    for (int i = 0; i < 8; ++i) out[i] = D(sums[i]);
  }
}

// Operands are in registers, in device memory or in a threadgroup's.
#define AIR_TENSOR_RUN(L, L_TYPE, R, R_TYPE)                                                  \
  AIR(void, air_tensor_run_##L##_##R,                                                         \
      "__tensorops_impl_matmul2d_op_run_cooperative_" #L "_" #R "_f32",                       \
      const air_product* product, const L_TYPE* left, const R_TYPE* right, float* out, int) { \
    air_tensor_run(product, left, right, out);                                                \
  }                                                                                           \
  AIR_TENSOR_RUN_ONE(dv, L, L_TYPE, R, R_TYPE)                                                \
  AIR_TENSOR_RUN_ONE(tg, L, L_TYPE, R, R_TYPE)                                                \
  AIR_TENSOR_RUN_BOTH(dv, dv, L, L_TYPE, R, R_TYPE)                                           \
  AIR_TENSOR_RUN_BOTH(dv, tg, L, L_TYPE, R, R_TYPE)                                           \
  AIR_TENSOR_RUN_BOTH(tg, dv, L, L_TYPE, R, R_TYPE)                                           \
  AIR_TENSOR_RUN_BOTH(tg, tg, L, L_TYPE, R, R_TYPE)
#define AIR_TENSOR_RUN_ONE(SPACE, L, L_TYPE, R, R_TYPE)                                        \
  AIR(void, air_tensor_run_##L##_##SPACE##_##R,                                                \
      "__tensorops_impl_matmul2d_op_run_cooperative_" #L "_" #SPACE "_" #R "_f32",             \
      const air_product* product, const L_TYPE* left, air_view* right, int, float* out, int) { \
    air_tensor_run(product, left, air_memory<R_TYPE>{right}, out);                             \
  }                                                                                            \
  AIR(void, air_tensor_run_##SPACE##_##L##_in_##R,                                             \
      "__tensorops_impl_matmul2d_op_run_cooperative_" #SPACE "_" #L "_" #R "_f32",             \
      const air_product* product, air_view* left, int, const R_TYPE* right, float* out, int) { \
    air_tensor_run(product, air_memory<L_TYPE>{left}, right, out);                             \
  }
#define AIR_TENSOR_RUN_BOTH(FIRST, SECOND, L, L_TYPE, R, R_TYPE)                                \
  AIR(void, air_tensor_run_##FIRST##_##L##_##SECOND##_##R,                                      \
      "__tensorops_impl_matmul2d_op_run_cooperative_" #FIRST "_" #L "_" #SECOND "_" #R "_f32",  \
      const air_product* product, air_view* left, int, air_view* right, int, float* out, int) { \
    air_tensor_run(product, air_memory<L_TYPE>{left}, air_memory<R_TYPE>{right}, out);          \
  }
AIR_TENSOR_RUN(f32, float, f32, float)
AIR_TENSOR_RUN(f32, float, f16, half)
AIR_TENSOR_RUN(f32, float, b16, bfloat)
AIR_TENSOR_RUN(f16, half, f32, float)
AIR_TENSOR_RUN(f16, half, f16, half)
AIR_TENSOR_RUN(f16, half, b16, bfloat)
AIR_TENSOR_RUN(b16, bfloat, f32, float)
AIR_TENSOR_RUN(b16, bfloat, f16, half)
AIR_TENSOR_RUN(b16, bfloat, b16, bfloat)
