// Activations and gated products, forward and backward, over rows of neighbouring elements.
//
// Each kernel has forms for eight and four elements a thread (vec8, vec4; the end of a row one by
// one) and one for a single element (scalar); those of one tensor also for sixteen of 16 bits.
#include "shared/activations.h"
#include "shared/rows.h"
#include "shared/vectors.h"

// --- functions of two values -----------------------------------------------------------

template <typename F>
struct Gradient {
  template <typename T, typename V>
  static V of(V gradient, V x) {
    return gradient * F::template slope<T>(x);
  }
};

struct SigmoidGradient {
  template <typename T, typename V>
  static V of(V gradient, V y) {
    return gradient * y * (1.0f - y);
  }
};

template <typename F>
struct Biased {
  template <typename T, typename V>
  static V of(V x, V bias) {
    return F::template of<T>(x + bias);
  }
};

template <typename F>
struct Gated {
  template <typename T, typename V>
  static V of(V gate, V up) {
    return F::template of<T>(gate) * up;
  }
};

// --- kernels ---------------------------------------------------------------------------

// Eight elements, or what a row has left of them.
template <typename T, typename F>
inline void map_rest(device const T* x, device T* y, uint count) {
  // anymetal: allow(aliasing) in place, a thread has read what it writes
  for (uint i = 0; i < count; ++i) y[i] = T(F::template of<T>(float(x[i])));
}

// Two accesses of eight elements a thread. Those of 32 neighbouring threads stand side by side.
template <typename T, typename F>
[[kernel]] void map_one_twice(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                              constant Rows<2>& rows [[buffer(2)]],
                              uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = (in_grid.x / 32 * 64 + in_grid.x % 32) * 8, distance = 32 * 8;
  x += in_grid.y * rows.strides[0] + column;
  y += in_grid.y * rows.strides[1] + column;
  if (column + distance + 8 <= rows.columns) {
    const Eight a = Eight::load(x), b = Eight::load(x + distance);
    Eight::store(y, F::template of<T>(a.low), F::template of<T>(a.high));
    Eight::store(y + distance, F::template of<T>(b.low), F::template of<T>(b.high));
    return;
  }
  if (column < rows.columns) map_rest<T, F>(x, y, min(rows.columns - column, 8u));
  if (column + distance < rows.columns)
    map_rest<T, F>(x + distance, y + distance, min(rows.columns - column - distance, 8u));
}

template <typename T, typename F, uint width>
[[kernel]] void map_one(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                        constant Rows<2>& rows [[buffer(2)]],
                        uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x * width;
  x += in_grid.y * rows.strides[0] + column;
  y += in_grid.y * rows.strides[1] + column;
  if (column + width <= rows.columns) {
    if constexpr (width == 8) {
      const Eight v = Eight::load(x);
      Eight::store(y, F::template of<T>(v.low), F::template of<T>(v.high));
    } else {
      Width<width>::store(y, F::template of<T>(Width<width>::load(x)));
    }
    return;
  }
  map_rest<T, F>(x, y, rows.columns - column);
}

template <typename T, typename F, uint width>
[[kernel]] void map_two(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                        device T* y [[buffer(2)]], constant Rows<3>& rows [[buffer(3)]],
                        uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x * width;
  a += in_grid.y * rows.strides[0] + column;
  b += in_grid.y * rows.strides[1] + column;
  y += in_grid.y * rows.strides[2] + column;
  if (column + width <= rows.columns) {
    if constexpr (width == 8) {
      const Eight v = Eight::load(a), w = Eight::load(b);
      Eight::store(y, F::template of<T>(v.low, w.low), F::template of<T>(v.high, w.high));
    } else {
      const auto v = Width<width>::load(a);
      Width<width>::store(y, F::template of<T>(v, Width<width>::load(b)));
    }
    return;
  }
  for (uint i = 0; i < rows.columns - column; ++i)
    y[i] = T(F::template of<T>(float(a[i]), float(b[i])));
}

// The gradients of F(gate) * up with respect to both.
template <typename T, typename F, uint width>
[[kernel]] void gated_backward(device const T* gradient [[buffer(0)]],
                               device const T* gate [[buffer(1)]], device const T* up [[buffer(2)]],
                               device T* gate_gradient [[buffer(3)]],
                               device T* up_gradient [[buffer(4)]],
                               constant Rows<5>& rows [[buffer(5)]],
                               uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x * width;
  gradient += in_grid.y * rows.strides[0] + column;
  gate += in_grid.y * rows.strides[1] + column;
  up += in_grid.y * rows.strides[2] + column;
  gate_gradient += in_grid.y * rows.strides[3] + column;
  up_gradient += in_grid.y * rows.strides[4] + column;
  if (column + width <= rows.columns) {
    if constexpr (width == 8) {
      const Eight dy = Eight::load(gradient), g = Eight::load(gate), u = Eight::load(up);
      Eight::store(gate_gradient, dy.low * u.low * F::template slope<T>(g.low),
                   dy.high * u.high * F::template slope<T>(g.high));
      Eight::store(up_gradient, dy.low * F::template of<T>(g.low),
                   dy.high * F::template of<T>(g.high));
    } else {
      const auto dy = Width<width>::load(gradient);
      const auto g = Width<width>::load(gate);
      const auto u = Width<width>::load(up);
      Width<width>::store(gate_gradient, dy * u * F::template slope<T>(g));
      Width<width>::store(up_gradient, dy * F::template of<T>(g));
    }
    return;
  }
  for (uint i = 0; i < rows.columns - column; ++i) {
    const float dy = float(gradient[i]);
    const float g = float(gate[i]);
    gate_gradient[i] = T(dy * float(up[i]) * F::template slope<T>(g));
    up_gradient[i] = T(dy * F::template of<T>(g));
  }
}

// The gradient of F(x + bias) with respect to x, and its sums over blocks of `block` rows: a thread
// walks down a column (or four), so that each block's sums need no other thread.
struct Blocks {
  uint columns;
  uint rows;
  uint block;  // rows of one
  uint blocks;
  long strides[3];  // of the gradient, x and its gradient
};

template <typename T, typename F, uint width>
[[kernel]] void biased_backward(device const T* gradient [[buffer(0)]],
                                device const T* x [[buffer(1)]], device const T* bias [[buffer(2)]],
                                device T* x_gradient [[buffer(3)]],
                                device float* sums [[buffer(4)]],
                                constant Blocks& sizes [[buffer(5)]],
                                uint2 in_grid [[thread_position_in_grid]]) {
  using V = typename Width<width>::type;
  const uint column = in_grid.x * width;
  const uint first = in_grid.y * sizes.block;
  const V b = Width<width>::load(bias + column);
  CompensatedSum<V> sum = {V(0.0f), V(0.0f)};
  for (uint row = first; row < min(first + sizes.block, sizes.rows); ++row) {
    const V dy = Width<width>::load(gradient + row * sizes.strides[0] + column);
    const V dx =
        dy * F::template slope<T>(Width<width>::load(x + row * sizes.strides[1] + column) + b);
    Width<width>::store(x_gradient + row * sizes.strides[2] + column, dx);
    sum.add(dx);
  }
  Width<width>::store(sums + long(in_grid.y) * sizes.columns + column, sum.total);
}

// The bias gradient: the sums of all blocks, a thread a column.
template <typename T>
[[kernel]] void sum_blocks(device const float* sums [[buffer(0)]], device T* total [[buffer(1)]],
                           constant Blocks& sizes [[buffer(2)]],
                           uint column [[thread_position_in_grid]]) {
  CompensatedSum<float> sum = {0.0f, 0.0f};
  for (uint i = 0; i < sizes.blocks; ++i) sum.add(sums[long(i) * sizes.columns + column]);
  total[column] = T(sum.total);
}

// --- instances: <name>_<vec16, vec8, vec4 or scalar>_<dtype>
// --------------------------------------------

#define MAP_OF_WIDTH(name, function, F, T, word, width)                           \
  template[[host_name(#name word #T)]] [[kernel]] decltype(function<T, F, width>) \
      function<T, F, width>;
#define MAP_OF_TYPE(name, function, F, T)         \
  MAP_OF_WIDTH(name, function, F, T, "_vec4_", 4) \
  MAP_OF_WIDTH(name, function, F, T, "_scalar_", 1)
#define MAP(name, function, F)          \
  MAP_OF_TYPE(name, function, F, float) \
  MAP_OF_TYPE(name, function, F, half)  \
  MAP_OF_TYPE(name, function, F, bfloat)
#define WIDE_MAP(name, function, F)                   \
  MAP(name, function, F)                              \
  MAP_OF_WIDTH(name, function, F, float, "_vec8_", 8) \
  MAP_OF_WIDTH(name, function, F, half, "_vec8_", 8)  \
  MAP_OF_WIDTH(name, function, F, bfloat, "_vec8_", 8)

#define SIXTEEN(name, F, T) \
  template [[host_name(     \
      #name "_vec16_" #T)]] [[kernel]] decltype(map_one_twice<T, F>) map_one_twice<T, F>;
#define MAP_ONE(name, F)     \
  WIDE_MAP(name, map_one, F) \
  SIXTEEN(name, F, half)     \
  SIXTEEN(name, F, bfloat)

MAP_ONE(silu, Silu)
MAP_ONE(gelu_none, GeluNone)
MAP_ONE(gelu_tanh, GeluTanh)
MAP_ONE(relu_squared, ReluSquared)
MAP_ONE(sigmoid, Sigmoid)

WIDE_MAP(silu_backward, map_two, Gradient<Silu>)
WIDE_MAP(gelu_none_backward, map_two, Gradient<GeluNone>)
WIDE_MAP(gelu_tanh_backward, map_two, Gradient<GeluTanh>)
WIDE_MAP(relu_squared_backward, map_two, Gradient<ReluSquared>)
WIDE_MAP(sigmoid_backward, map_two, SigmoidGradient)

WIDE_MAP(bias_silu, map_two, Biased<Silu>)
WIDE_MAP(bias_gelu_none, map_two, Biased<GeluNone>)
WIDE_MAP(bias_gelu_tanh, map_two, Biased<GeluTanh>)
MAP(bias_silu_backward, biased_backward, Silu)
MAP(bias_gelu_none_backward, biased_backward, GeluNone)
MAP(bias_gelu_tanh_backward, biased_backward, GeluTanh)
INSTANTIATE(sum_blocks)

WIDE_MAP(swiglu, map_two, Gated<Silu>)
WIDE_MAP(geglu_none, map_two, Gated<GeluNone>)
WIDE_MAP(geglu_tanh, map_two, Gated<GeluTanh>)
WIDE_MAP(swiglu_backward, gated_backward, Silu)
WIDE_MAP(geglu_none_backward, gated_backward, GeluNone)
WIDE_MAP(geglu_tanh_backward, gated_backward, GeluTanh)
