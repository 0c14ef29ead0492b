// What the body of an MLX kernel finds without including anything: its names of types, and the
// functions that turn the number of an element into its place.
#include <metal_stdlib>
using namespace metal;

typedef half float16_t;
typedef bfloat bfloat16_t;

#define MLX_MTL_CONST static constant constexpr const
#define MLX_MTL_LOOP_UNROLL _Pragma("clang loop unroll(full)")
#define MLX_MTL_PRAGMA_UNROLL MLX_MTL_LOOP_UNROLL

template <typename T>
struct Limits {
  MLX_MTL_CONST T max = numeric_limits<T>::max();
  MLX_MTL_CONST T min = numeric_limits<T>::lowest();
  MLX_MTL_CONST T finite_max = numeric_limits<T>::max();
  MLX_MTL_CONST T finite_min = numeric_limits<T>::lowest();
};

// The largest float is infinite.
#define MLX_FLOAT_LIMITS(T)                                 \
  template <>                                               \
  struct Limits<T> {                                        \
    MLX_MTL_CONST T max = numeric_limits<T>::infinity();    \
    MLX_MTL_CONST T min = -numeric_limits<T>::infinity();   \
    MLX_MTL_CONST T finite_max = numeric_limits<T>::max();  \
    MLX_MTL_CONST T finite_min = -numeric_limits<T>::max(); \
  };

MLX_FLOAT_LIMITS(float)
MLX_FLOAT_LIMITS(half)
MLX_FLOAT_LIMITS(bfloat)
#undef MLX_FLOAT_LIMITS

template <typename T, typename U>
inline T ceildiv(T total, U part) {
  return (total + part - 1) / part;
}

// The last dimension runs fastest.
template <typename Index = int64_t>
inline Index elem_to_loc(Index elem, constant const int *shape, constant const int64_t *strides,
                         int ndim) {
  Index loc = 0;
  for (int axis = ndim - 1; axis >= 0 && elem > 0; --axis) {
    loc += (elem % shape[axis]) * Index(strides[axis]);
    elem /= shape[axis];
  }
  return loc;
}

// The last two dimensions have numbers of their own; z counts through all others.
template <typename Index = int64_t>
inline Index elem_to_loc(uint3 elem, constant const int *shape, constant const int64_t *strides,
                         int ndim) {
  Index loc = Index(elem.x) * Index(strides[ndim - 1]) + Index(elem.y) * Index(strides[ndim - 2]);
  return loc + elem_to_loc<Index>(Index(elem.z), shape, strides, ndim - 2);
}

template <typename Index = int64_t>
inline Index elem_to_loc_1(uint elem, constant const int64_t &stride) {
  return Index(elem) * Index(stride);
}

template <typename Index = int64_t>
inline Index elem_to_loc_2(uint2 elem, constant const int64_t strides[2]) {
  return Index(elem.x) * Index(strides[1]) + Index(elem.y) * Index(strides[0]);
}

template <typename Index = int64_t>
inline Index elem_to_loc_3(uint3 elem, constant const int64_t strides[3]) {
  return Index(elem.x) * Index(strides[2]) + Index(elem.y) * Index(strides[1]) +
         Index(elem.z) * Index(strides[0]);
}

// Metal computes these of floats alone; MLX has them of bfloats too, rounded once.
namespace metal {
#define MLX_BFLOAT_1(NAME) \
  inline bfloat NAME(bfloat x) { return bfloat(NAME(float(x))); }
#define MLX_BFLOAT_LANE(NAME) \
  inline bfloat NAME(bfloat x, ushort lane) { return bfloat(NAME(float(x), lane)); }
#define MLX_BFLOAT_2(NAME) \
  inline bfloat NAME(bfloat x, bfloat y) { return bfloat(NAME(float(x), float(y))); }
#define MLX_BFLOAT_3(NAME)                             \
  inline bfloat NAME(bfloat x, bfloat y, bfloat z) {   \
    return bfloat(NAME(float(x), float(y), float(z))); \
  }
MLX_BFLOAT_1(abs)
MLX_BFLOAT_1(acos)
MLX_BFLOAT_1(acosh)
MLX_BFLOAT_1(asin)
MLX_BFLOAT_1(asinh)
MLX_BFLOAT_1(atan)
MLX_BFLOAT_1(atanh)
MLX_BFLOAT_1(ceil)
MLX_BFLOAT_1(cos)
MLX_BFLOAT_1(cosh)
MLX_BFLOAT_1(cospi)
MLX_BFLOAT_1(exp)
MLX_BFLOAT_1(exp10)
MLX_BFLOAT_1(exp2)
MLX_BFLOAT_1(fabs)
MLX_BFLOAT_1(floor)
MLX_BFLOAT_1(fract)
MLX_BFLOAT_1(log)
MLX_BFLOAT_1(log10)
MLX_BFLOAT_1(log2)
MLX_BFLOAT_1(rint)
MLX_BFLOAT_1(round)
MLX_BFLOAT_1(rsqrt)
MLX_BFLOAT_1(sin)
MLX_BFLOAT_1(sinh)
MLX_BFLOAT_1(sinpi)
MLX_BFLOAT_1(sqrt)
MLX_BFLOAT_1(tan)
MLX_BFLOAT_1(tanh)
MLX_BFLOAT_1(tanpi)
MLX_BFLOAT_1(trunc)
MLX_BFLOAT_1(simd_broadcast_first)
MLX_BFLOAT_1(simd_max)
MLX_BFLOAT_1(simd_min)
MLX_BFLOAT_1(simd_prefix_exclusive_product)
MLX_BFLOAT_1(simd_prefix_exclusive_sum)
MLX_BFLOAT_1(simd_prefix_inclusive_product)
MLX_BFLOAT_1(simd_prefix_inclusive_sum)
MLX_BFLOAT_1(simd_product)
MLX_BFLOAT_1(simd_sum)
MLX_BFLOAT_LANE(simd_broadcast)
MLX_BFLOAT_LANE(simd_shuffle)
MLX_BFLOAT_LANE(simd_shuffle_down)
MLX_BFLOAT_LANE(simd_shuffle_rotate_down)
MLX_BFLOAT_LANE(simd_shuffle_rotate_up)
MLX_BFLOAT_LANE(simd_shuffle_up)
MLX_BFLOAT_LANE(simd_shuffle_xor)
MLX_BFLOAT_2(atan2)
MLX_BFLOAT_2(copysign)
MLX_BFLOAT_2(fdim)
MLX_BFLOAT_2(fmax)
MLX_BFLOAT_2(fmin)
MLX_BFLOAT_2(fmod)
MLX_BFLOAT_2(max)
MLX_BFLOAT_2(min)
MLX_BFLOAT_2(pow)
MLX_BFLOAT_3(clamp)
MLX_BFLOAT_3(fma)
MLX_BFLOAT_3(max3)
MLX_BFLOAT_3(median3)
MLX_BFLOAT_3(min3)
#undef MLX_BFLOAT_1
#undef MLX_BFLOAT_LANE
#undef MLX_BFLOAT_2
#undef MLX_BFLOAT_3
}  // namespace metal

// Also where 1 + x rounds to 1.
inline float log1p(float x) {
  const float sum = 1 + x;
  if (sum == 1 || isinf(sum)) return sum == 1 ? x : sum;
  return x * (log(sum) / (sum - 1));
}
inline half log1p(half x) { return half(log1p(float(x))); }
inline bfloat log1p(bfloat x) { return bfloat(log1p(float(x))); }
