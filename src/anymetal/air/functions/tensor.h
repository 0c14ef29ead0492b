// Metal 4's products of matrices that a simdgroup holds in registers (matmul2d).
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

struct air_product {
  int m, n, k;
  bool transpose_left, transpose_right, relaxed;
  int mode;
};

// One fused multiply-add after the other along k, in float.
template <class L, class R, class D>
AM_INLINE void air_tensor_run(const air_product* product, const L* left, const R* right, D* out) {
  int m = product->m, n = product->n, k = product->k;
  bool left_down = product->transpose_left, right_down = !product->transpose_right;
  int left_across = (left_down ? m : k) / 16, right_across = (right_down ? n : k) / 16;
  int blocks = m * n / 256, across = n / 16;
  int row = air_fragment_row(am_lane()), column = air_fragment_column(am_lane());
  for (int block = 0; block < blocks; ++block, out += 8) {
    int top = 16 * (block / across) + row, start = 16 * (block % across) + column;
    float sums[8], a[2], b[4];
    for (int i = 0; i < 8; ++i) sums[i] = product->mode ? float(out[i]) : 0.0f;
    for (int step = 0; step < k; ++step) {
      int first = (step & 8) / 2;
      for (int i = 0; i < 2; ++i)
        a[i] = left_down
                   ? air_tensor_at(left, left_across, step, top + 8 * i, first, 4, 1)
                   : air_tensor_at(left, left_across, top + 8 * i, step, 4 * i + (step & 3), 1, 1);
      for (int i = 0; i < 4; ++i)
        b[i] = right_down ? air_tensor_at(right, right_across, step, start + i, first + i, 1, 1)
                          : air_tensor_at(right, right_across, start + i, step, step & 3, 2, 4);
      for (int i = 0; i < 8; ++i) sums[i] = __builtin_fmaf(a[i / 4], b[i % 4], sums[i]);
    }
    for (int i = 0; i < 8; ++i) out[i] = D(sums[i]);
  }
}

#define AIR_TENSOR_RUN(L, L_TYPE, R, R_TYPE)                                                  \
  AIR(void, air_tensor_run_##L##_##R,                                                         \
      "__tensorops_impl_matmul2d_op_run_cooperative_" #L "_" #R "_f32",                       \
      const air_product* product, const L_TYPE* left, const R_TYPE* right, float* out, int) { \
    air_tensor_run(product, left, right, out);                                                \
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
