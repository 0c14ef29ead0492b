// Weights of 4 or 8 bits in words of 32, in groups along a row that share a scale.
//
// A block is 32 words, one for each lane of a simdgroup. Code i of word l belongs to weight 32 i +
// l of the block: a chunk is the 32 weights at one place of the words. Lanes read neighbouring
// words and neighbouring activations, and a chunk is in one group. A row ends with a whole block,
// of which the last chunks may be unused.
//
// What a code of 0 to 2^bits - 1 stands for depends on what a group has besides its scale:
//   Symmetric  nothing:         scale * (code - 2^(bits - 1))
//   ZeroPoint  a code for zero: scale * (code - zero)
//   Affine     a bias:          scale * code + bias
#pragma once
#include "shared/activations.h"
#include "shared/vectors.h"

constant constexpr uint placed_exponent = 0x4b000000u;  // of floats from 2^23 on, which are whole

template <uint bits>
struct Packed {
  static constexpr constant uint chunks = 32 / bits;  // of a block
  static constexpr constant uint columns = 32 * chunks;
  static constexpr constant uint largest = (1u << bits) - 1;
  static constexpr constant uint middle = 1u << (bits - 1);

  static uint words(uint columns_of_row) { return (columns_of_row + columns - 1) / columns * 32; }
  static uint code(uint word, uint i) { return (word >> (bits * i)) & largest; }

  // With the top bit of every code turned over, a code is code - middle in two's complement: the
  // sign comes with the shifts that take it out.
  static uint turned(uint word) { return word ^ (bits == 4 ? 0x88888888u : 0x80808080u); }
  static float signed_code(uint turned, uint i) {
    return float(int(turned << (32 - bits * (i + 1))) >> (32 - bits));
  }

  // code - middle times 2^at, exactly, where a code stands `at` bits high in its half of the word:
  // bits of a mantissa are a number without a conversion, which many GPUs do slowly.
  static uint height(uint i) { return bits * i % 16; }
  static float placed_code(uint word, uint i, uint exponent = placed_exponent) {
    const uint half_of_word = bits * i < 16 ? word : word >> 16;
    const uint mantissa = half_of_word & (largest << height(i));
    return as_type<float>(exponent | mantissa) - float(0x800000u + (middle << height(i)));
  }
  // What takes the 2^at away again.
  static float placed_factor(uint i) { return 1.0f / float(1u << height(i)); }
};

// `value` is a weight, rounded once; `shift` makes it scale * (code - middle) + shift.

struct Symmetric {
  template <typename S>
  using Offset = S;  // not read
  static constexpr constant bool shifted = false;

  template <uint bits, typename S>
  static float value(float scale, device const S*, uint code) {
    return scale * (float(code) - float(Packed<bits>::middle));
  }
  template <uint bits, typename S>
  static float shift(float, device const S*) {
    return 0.0f;
  }
};

struct ZeroPoint {
  template <typename S>
  using Offset = uchar;
  static constexpr constant bool shifted = true;

  template <uint bits>
  static float value(float scale, device const uchar* zero, uint code) {
    return scale * (float(code) - float(*zero));
  }
  template <uint bits>
  static float shift(float scale, device const uchar* zero) {
    return scale * (float(Packed<bits>::middle) - float(*zero));
  }
};

struct Affine {
  template <typename S>
  using Offset = S;
  static constexpr constant bool shifted = true;

  template <uint bits, typename S>
  static float value(float scale, device const S* bias, uint code) {
    return fma(scale, float(code), float(*bias));
  }
  template <uint bits, typename S>
  static float shift(float scale, device const S* bias) {
    return fma(scale, float(Packed<bits>::middle), float(*bias));
  }
};

// What the host passes to products of activations and weights; first what tells where they lie.
struct Numbers {
  long stride;  // between rows of activations
  uint rows;    // of weights
  uint columns;
  uint count;  // rows of activations
  uint group_size;
  Activation activation;
  bool has_bias;
  uint split;  // simdgroups that share rows of weights, where each has a part of the columns
};

// --- instances -----------------------------------------------------------------------------------

// Scales have the dtype of the activations, but those of ggml's formats, which are symmetric, are
// halves always. FOR_EACH_KIND(X) is X(kind, suffix of its name, activations, scales).
#define FOR_EACH_KIND(X)                   \
  X(Symmetric, symmetric, float, float)    \
  X(Symmetric, symmetric, float, half)     \
  X(Symmetric, symmetric, half, half)      \
  X(Symmetric, symmetric, bfloat, bfloat)  \
  X(Symmetric, symmetric, bfloat, half)    \
  X(ZeroPoint, zero_point, float, float)   \
  X(ZeroPoint, zero_point, half, half)     \
  X(ZeroPoint, zero_point, bfloat, bfloat) \
  X(Affine, affine, float, float)          \
  X(Affine, affine, half, half)            \
  X(Affine, affine, bfloat, bfloat)
