// Many rows of activations times quantised weights, y = f(x W^T + bias), and the gradient of x,
// dx = dy W, by tiles.
#include "shared/weight_tiles.h"

// Quantised weights: `columns` weights a row, `rows` rows.
template <typename Kind, uint bits, typename S>
struct Weights {
  using Offset = typename Kind::template Offset<S>;
  device const uint* words;
  device const S* scales;
  device const Offset* offsets;
  uint rows;
  uint columns;
  uint group_size;

  // A simdgroup a row at a time.
  void load(threadgroup float* tile, uint from, uint at, uint simd, uint lane,
            uint simdgroups) const {
    const uint in_row = at / Packed<bits>::columns * 32 + lane;
    const uint chunk = at % Packed<bits>::columns / 32;
    for (uint row = simd; row < 32; row += simdgroups) {
      float value = 0.0f;
      if (from + row < rows) {
        const uint group = ((from + row) * columns + at) / group_size;
        const uint word = words[(from + row) * Packed<bits>::words(columns) + in_row];
        value = Kind::template value<bits>(float(scales[group]), offsets + group,
                                           Packed<bits>::code(word, chunk));
      }
      tile[row * row_floats + lane] = value;
    }
  }
};

template <typename T, typename S, typename Kind, uint bits, bool transposed>
[[kernel]] void matmul(device const T* x [[buffer(0)]], device const uint* words [[buffer(1)]],
                       device const S* scales [[buffer(2)]],
                       device const typename Kind::template Offset<S>* offsets [[buffer(3)]],
                       device const T* bias [[buffer(4)]], device T* y [[buffer(5)]],
                       constant Numbers& numbers [[buffer(6)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float left_tile[most_simdgroups * strip_rows * row_floats];
  threadgroup float right_tile[32 * row_floats];
  const Weights<Kind, bits, S> weights = {words,        scales,          offsets,
                                          numbers.rows, numbers.columns, numbers.group_size};
  multiply_tiles<T, transposed>(x, weights, bias, y, numbers, left_tile, right_tile, group, simd,
                                lane, simdgroups);
}

// --- instances: matmul_<kind>_<bits>_<activations>_<scales>, matmul_backward_... -----------------

#define MATMUL(Kind, name, T, S, bits)                                                \
  template [[host_name("matmul_" #name "_" #bits "_" #T                               \
                       "_" #S)]] [[kernel]] decltype(matmul<T, S, Kind, bits, true>)  \
      matmul<T, S, Kind, bits, true>;                                                 \
  template [[host_name("matmul_backward_" #name "_" #bits "_" #T                      \
                       "_" #S)]] [[kernel]] decltype(matmul<T, S, Kind, bits, false>) \
      matmul<T, S, Kind, bits, false>;
#define MATMUL_OF_EACH_WIDTH(Kind, name, T, S) \
  MATMUL(Kind, name, T, S, 4) MATMUL(Kind, name, T, S, 8)

FOR_EACH_KIND(MATMUL_OF_EACH_WIDTH)
