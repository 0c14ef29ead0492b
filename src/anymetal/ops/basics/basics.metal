// fill, axpy and copy: the smallest kernels, over rows of neighbouring elements.
//
// Each has a form for four elements a thread (vec4; the end of a row one by one) and one for a
// single element (scalar).
#include "shared/rows.h"
#include "shared/vectors.h"

struct Fill {
  uint columns;
  long strides[1];
  float value;
};

template <typename T, uint width>
[[kernel]] void fill(device T* y [[buffer(0)]], constant Fill& rows [[buffer(1)]],
                     uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x * width;
  y += in_grid.y * rows.strides[0] + column;
  if (column + width <= rows.columns) {
    Width<width>::store(y, typename Width<width>::type(rows.value));
    return;
  }
  for (uint i = 0; i < rows.columns - column; ++i) y[i] = T(rows.value);
}

template <uint count>
struct Scaled {
  uint columns;
  long strides[count];
  float alpha;
};

// result = alpha * x + y, rounded once.
template <typename T, uint width>
[[kernel]] void axpy(device const T* x [[buffer(0)]], device const T* y [[buffer(1)]],
                     device T* result [[buffer(2)]], constant Scaled<3>& rows [[buffer(3)]],
                     uint2 in_grid [[thread_position_in_grid]]) {
  using V = typename Width<width>::type;
  const uint column = in_grid.x * width;
  x += in_grid.y * rows.strides[0] + column;
  y += in_grid.y * rows.strides[1] + column;
  result += in_grid.y * rows.strides[2] + column;
  if (column + width <= rows.columns) {
    Width<width>::store(result, fma(V(rows.alpha), Width<width>::load(x), Width<width>::load(y)));
    return;
  }
  for (uint i = 0; i < rows.columns - column; ++i)
    // anymetal: allow(aliasing) in place, a thread has read what it writes
    result[i] = T(fma(rows.alpha, float(x[i]), float(y[i])));
}

// The gradient of axpy with respect to x: alpha times the gradient of the result.
template <typename T, uint width>
[[kernel]] void axpy_backward(device const T* gradient [[buffer(0)]], device T* y [[buffer(1)]],
                              constant Scaled<2>& rows [[buffer(2)]],
                              uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x * width;
  gradient += in_grid.y * rows.strides[0] + column;
  y += in_grid.y * rows.strides[1] + column;
  if (column + width <= rows.columns) {
    Width<width>::store(y, rows.alpha * Width<width>::load(gradient));
    return;
  }
  for (uint i = 0; i < rows.columns - column; ++i) y[i] = T(rows.alpha * float(gradient[i]));
}

template <typename From, typename To, uint width>
[[kernel]] void copy(device const From* x [[buffer(0)]], device To* y [[buffer(1)]],
                     constant Rows<2>& rows [[buffer(2)]],
                     uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x * width;
  x += in_grid.y * rows.strides[0] + column;
  y += in_grid.y * rows.strides[1] + column;
  if (column + width <= rows.columns) {
    Width<width>::store(y, Width<width>::load(x));
    return;
  }
  for (uint i = 0; i < rows.columns - column; ++i) y[i] = To(float(x[i]));
}

// Any strides: `dimensions` holds size, stride of x and stride of y, the innermost dimension first.
template <typename From, typename To>
[[kernel]] void copy_strided(device const From* x [[buffer(0)]], device To* y [[buffer(1)]],
                             constant uint& rank [[buffer(2)]],
                             constant long* dimensions [[buffer(3)]],
                             uint in_grid [[thread_position_in_grid]]) {
  long from = 0, to = 0;
  uint rest = in_grid;
  for (uint i = 0; i < rank; ++i) {
    const uint size = uint(dimensions[3 * i]);
    const uint at = rest % size;
    rest /= size;
    from += at * dimensions[3 * i + 1];
    to += at * dimensions[3 * i + 2];
  }
  y[to] = To(float(x[from]));
}

// --- instances: <name>_<vec4, scalar or strided>_<dtype>, copies <from>_<to> ---------------------

#define WIDTHS_OF_TYPE(name, T)                                                         \
  template [[host_name(#name "_vec4_" #T)]] [[kernel]] decltype(name<T, 4>) name<T, 4>; \
  template [[host_name(#name "_scalar_" #T)]] [[kernel]] decltype(name<T, 1>) name<T, 1>;
#define WIDTHS(name) \
  WIDTHS_OF_TYPE(name, float) WIDTHS_OF_TYPE(name, half) WIDTHS_OF_TYPE(name, bfloat)

#define COPY(From, To)                                                                      \
  template [[host_name("copy_vec4_" #From                                                   \
                       "_" #To)]] [[kernel]] decltype(copy<From, To, 4>) copy<From, To, 4>; \
  template [[host_name("copy_scalar_" #From                                                 \
                       "_" #To)]] [[kernel]] decltype(copy<From, To, 1>) copy<From, To, 1>; \
  template                                                                                  \
      [[host_name("copy_strided_" #From                                                     \
                  "_" #To)]] [[kernel]] decltype(copy_strided<From, To>) copy_strided<From, To>;
#define COPIES(From) COPY(From, float) COPY(From, half) COPY(From, bfloat)

WIDTHS(fill)
WIDTHS(axpy)
WIDTHS(axpy_backward)
COPIES(float)
COPIES(half)
COPIES(bfloat)
