// Weights become codes, scales and zero points, and weights again.
//
// A simdgroup quantises a block: its lanes look at a group of 32, 64 or 128 weights together, one
// group after another, and each puts its codes into a word of its own.
#include "shared/packed.h"

// ggml's and MLX's formats are defined by float arithmetic, each operation rounded by itself.
#pragma METAL fp contract(off)

// --- quantise ------------------------------------------------------------------------------------

// What a recipe needs to know of a group.
struct Extent {
  float least;
  float largest;
  float furthest;  // the weight with the largest magnitude; of two such, the first

  float magnitude() const thread { return max(abs(least), abs(largest)); }
};

// Of `size` neighbouring weights, by a simdgroup.
template <typename T>
inline Extent extent_of(device const T* weights, uint size, uint lane) {
  float least = INFINITY;
  float largest = -INFINITY;
  for (uint i = lane; i < size; i += 32) {
    const float weight = float(weights[i]);
    least = min(least, weight);
    largest = max(largest, weight);
  }
  Extent extent = {simd_min(least), simd_max(largest), 0.0f};
  uint first = size;
  for (uint i = lane; i < size; i += 32) {
    if (abs(float(weights[i])) == extent.magnitude()) first = min(first, i);
  }
  first = simd_min(first);
  // No weight is the largest where one is not a number.
  extent.furthest = first < size ? float(weights[first]) : 0.0f;
  return extent;
}

// A recipe is made from an extent. `scale` and `offset` are what is stored (rounded to S there),
// `code` is a weight's. Numbers are clamped before they become integers: NaN becomes a code too.

template <uint bits, typename S>
struct SymmetricRecipe {
  using Offset = S;
  static constexpr constant bool has_offset = false;
  float scale;
  float offset;

  explicit SymmetricRecipe(Extent extent) {
    scale = float(S(extent.magnitude() / float(Packed<bits>::middle - 1)));
    offset = float(Packed<bits>::middle);
  }
  uint code(float weight) const thread {
    const float steps = scale == 0.0f ? 0.0f : rint(weight / scale);
    return uint(clamp(steps + offset, 0.0f, float(Packed<bits>::largest)));
  }
};

// The range takes zero in, so that zero is one of the codes.
template <uint bits, typename S>
struct ZeroPointRecipe {
  using Offset = uchar;
  static constexpr constant bool has_offset = true;
  float scale;
  float offset;

  explicit ZeroPointRecipe(Extent extent) {
    const float codes = float(Packed<bits>::largest);
    const float least = min(extent.least, 0.0f);
    // Each divided by itself: the difference of the two may be more than a float holds.
    scale = float(S(max(extent.largest, 0.0f) / codes - least / codes));
    offset = scale == 0.0f ? 0.0f : clamp(rint(-least / scale), 0.0f, codes);
  }
  uint code(float weight) const thread {
    const float steps = scale == 0.0f ? 0.0f : rint(weight / scale);
    return uint(clamp(steps + offset, 0.0f, float(Packed<bits>::largest)));
  }
};

// MLX's: the end of the range that is further from zero is the bias and is exact, and the scale is
// adjusted so that zero is exact too, unless it is nearer to the bias than half a step.
template <uint bits, typename S>
struct AffineRecipe {
  using Offset = S;
  static constexpr constant bool has_offset = true;
  float scale;
  float offset;

  explicit AffineRecipe(Extent extent) {
    const float step = max((extent.largest - extent.least) / float(Packed<bits>::largest), 1e-7f);
    const bool below = abs(extent.least) > abs(extent.largest);
    const float edge = below ? extent.least : extent.largest;
    scale = below ? step : -step;
    const float steps = rint(edge / scale);
    offset = 0.0f;
    if (steps != 0.0f) {
      scale = edge / steps;
      offset = edge;
    }
  }
  uint code(float weight) const thread {
    const float steps = rint((weight - offset) / scale);
    return uint(clamp(steps, 0.0f, float(Packed<bits>::largest)));
  }
};

// ggml's q4_0: the weight furthest from zero becomes -8.
template <uint bits, typename S>
struct Q4_0Recipe {
  using Offset = S;
  static constexpr constant bool has_offset = false;
  float scale;
  float offset;
  float reciprocal;

  explicit Q4_0Recipe(Extent extent) {
    scale = extent.furthest / -8.0f;
    reciprocal = scale == 0.0f ? 0.0f : 1.0f / scale;
    offset = 8.5f;
  }
  uint code(float weight) const thread {
    const float steps = weight * reciprocal;
    return uint(clamp(steps + offset, 0.0f, 15.0f));
  }
};

// ggml's q8_0: halves are rounded away from zero.
template <uint bits, typename S>
struct Q8_0Recipe {
  using Offset = S;
  static constexpr constant bool has_offset = false;
  float scale;
  float offset;
  float reciprocal;

  explicit Q8_0Recipe(Extent extent) {
    scale = extent.magnitude() / 127.0f;
    reciprocal = scale == 0.0f ? 0.0f : 1.0f / scale;
    offset = 128.0f;
  }
  uint code(float weight) const thread {
    const float steps = round(weight * reciprocal);
    return uint(clamp(steps + offset, 0.0f, 255.0f));
  }
};

struct MatrixNumbers {
  uint columns;
  uint group_size;
  long stride;  // between rows of weights
};

template <typename T, typename S, template <uint, typename> class Recipe, uint bits>
[[kernel]] void quantize(device const T* weights [[buffer(0)]], device uint* words [[buffer(1)]],
                         device S* scales [[buffer(2)]],
                         device typename Recipe<bits, S>::Offset* offsets [[buffer(3)]],
                         constant MatrixNumbers& numbers [[buffer(4)]],
                         uint2 group [[threadgroup_position_in_grid]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  using Made = Recipe<bits, S>;
  const uint columns = numbers.columns, group_size = numbers.group_size;
  const uint row = group.y;
  const uint block = group.x * simdgroups + simd;
  const uint first = block * Packed<bits>::columns;
  if (first >= columns) return;
  const uint end = min(first + Packed<bits>::columns, columns);
  weights += row * numbers.stride;
  uint word = 0;
  for (uint at = first; at < end; at += group_size) {
    const uint index = row * (columns / group_size) + at / group_size;
    const Made recipe(extent_of(weights + at, group_size, lane));
    if (lane == 0) {
      scales[index] = S(recipe.scale);
      if (Made::has_offset) offsets[index] = typename Made::Offset(recipe.offset);
    }
    for (uint i = 0; i < group_size; i += 32) {
      word |= recipe.code(float(weights[at + i + lane])) << ((at - first + i) / 32 * bits);
    }
  }
  words[row * Packed<bits>::words(columns) + block * 32 + lane] = word;
}

// --- dequantise ----------------------------------------------------------------------------------

// A thread a word, a simdgroup a block.
template <typename T, typename S, typename Kind, uint bits>
[[kernel]] void dequantize(
    device const uint* words [[buffer(0)]], device const S* scales [[buffer(1)]],
    device const typename Kind::template Offset<S>* offsets [[buffer(2)]],
    device T* weights [[buffer(3)]], constant MatrixNumbers& numbers [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const uint columns = numbers.columns, group_size = numbers.group_size;
  const uint row = group.y;
  const uint block = group.x * simdgroups + simd;
  const uint first = block * Packed<bits>::columns;
  if (first >= columns) return;
  const uint word = words[row * Packed<bits>::words(columns) + block * 32 + lane];
  const uint chunks = min(columns - first, Packed<bits>::columns) / 32;
  for (uint i = 0; i < chunks; ++i) {
    const uint at = row * columns + first + i * 32;
    const uint index = at / group_size;
    const float weight = Kind::template value<bits>(float(scales[index]), offsets + index,
                                                    Packed<bits>::code(word, i));
    weights[at + lane] = T(weight);
  }
}

// --- instances: quantize_<recipe>_<bits>_<weights>_<scales>, dequantize_<kind>_<bits>_... --------

#define QUANTIZE(Recipe, name, bits, T, S) \
  template [[host_name(                    \
      "quantize_" #name "_" #bits "_" #T   \
      "_" #S)]] [[kernel]] decltype(quantize<T, S, Recipe, bits>) quantize<T, S, Recipe, bits>;
#define QUANTIZE_TO_EACH(Recipe, name, bits, T) \
  QUANTIZE(Recipe, name, bits, T, float)        \
  QUANTIZE(Recipe, name, bits, T, half)         \
  QUANTIZE(Recipe, name, bits, T, bfloat)
#define QUANTIZE_EACH(Recipe, name, bits)     \
  QUANTIZE_TO_EACH(Recipe, name, bits, float) \
  QUANTIZE_TO_EACH(Recipe, name, bits, half)  \
  QUANTIZE_TO_EACH(Recipe, name, bits, bfloat)
#define QUANTIZE_GGML(Recipe, name, bits)   \
  QUANTIZE(Recipe, name, bits, float, half) \
  QUANTIZE(Recipe, name, bits, half, half)  \
  QUANTIZE(Recipe, name, bits, bfloat, half)

QUANTIZE_EACH(SymmetricRecipe, symmetric, 4)
QUANTIZE_EACH(SymmetricRecipe, symmetric, 8)
QUANTIZE_EACH(ZeroPointRecipe, zero_point, 4)
QUANTIZE_EACH(ZeroPointRecipe, zero_point, 8)
QUANTIZE_EACH(AffineRecipe, affine, 4)
QUANTIZE_EACH(AffineRecipe, affine, 8)
QUANTIZE_GGML(Q4_0Recipe, q4_0, 4)
QUANTIZE_GGML(Q8_0Recipe, q8_0, 8)

#define DEQUANTIZE(Kind, name, bits, T, S) \
  template [[host_name(                    \
      "dequantize_" #name "_" #bits "_" #T \
      "_" #S)]] [[kernel]] decltype(dequantize<T, S, Kind, bits>) dequantize<T, S, Kind, bits>;
#define DEQUANTIZE_TO_EACH(Kind, name, bits, S) \
  DEQUANTIZE(Kind, name, bits, float, S)        \
  DEQUANTIZE(Kind, name, bits, half, S)         \
  DEQUANTIZE(Kind, name, bits, bfloat, S)
#define DEQUANTIZE_EACH(Kind, name)         \
  DEQUANTIZE_TO_EACH(Kind, name, 4, float)  \
  DEQUANTIZE_TO_EACH(Kind, name, 4, half)   \
  DEQUANTIZE_TO_EACH(Kind, name, 4, bfloat) \
  DEQUANTIZE_TO_EACH(Kind, name, 8, float)  \
  DEQUANTIZE_TO_EACH(Kind, name, 8, half)   \
  DEQUANTIZE_TO_EACH(Kind, name, 8, bfloat)

DEQUANTIZE_EACH(Symmetric, symmetric)
DEQUANTIZE_EACH(ZeroPoint, zero_point)
DEQUANTIZE_EACH(Affine, affine)
