// What a kernel is told about a product C = A B: sizes, where the operands lie, and what becomes of
// a sum before it is written: f(alpha * sum + beta * bias) + residual.
#pragma once
#include "shared/activations.h"

constant constexpr uint has_bias = 1;
constant constexpr uint has_residual = 2;
// The residual is a gradient, and is multiplied by the slope of f instead of added to its value.
constant constexpr uint is_gradient = 4;

// Element (row, column) of an operand stands at row * `row` + column * `column`.
struct Strides {
  long row;
  long column;
};

// The numbers that the host passes: m, n, k, f, flags, the part of k that is summed up at once,
// dimensions of the batch; then the strides of A, B, C, bias and residual; then for each dimension
// of the batch its size and five strides.
struct Problem {
  uint m;
  uint n;
  uint k;
  uint function;
  uint flags;
  uint at_once;
  Strides a, b, c, bias, residual;
  long starts[5];  // where this batch entry begins in each operand

  Problem(constant long* numbers, uint batch)
      : m(uint(numbers[0])),
        n(uint(numbers[1])),
        k(uint(numbers[2])),
        function(uint(numbers[3])),
        flags(uint(numbers[4])),
        at_once(uint(numbers[5])),
        a{numbers[7], numbers[8]},
        b{numbers[9], numbers[10]},
        c{numbers[11], numbers[12]},
        bias{numbers[13], numbers[14]},
        residual{numbers[15], numbers[16]} {
    for (uint i = 0; i < 5; ++i) starts[i] = 0;
    for (uint dimension = uint(numbers[6]); dimension > 0; --dimension) {
      constant long* of = numbers + 17 + 6 * (dimension - 1);
      const uint size = uint(of[0]);
      for (uint i = 0; i < 5; ++i) starts[i] += (batch % size) * of[1 + i];
      batch /= size;
    }
  }
};

// The same function for all threads: the branches do not diverge, and no loop over k has them.
inline float activated(uint function, float x) {
  switch (function) {
    case 1:
      return Relu::of(x);
    case 2:
      return Silu::of(x);
    case 3:
      return GeluNone::of(x);
    case 4:
      return GeluTanh::of(x);
    default:
      return x;
  }
}

inline float slope_at(uint function, float x) {
  switch (function) {
    case 1:
      return Relu::slope(x);
    case 2:
      return Silu::slope(x);
    case 3:
      return GeluNone::slope(x);
    case 4:
      return GeluTanh::slope(x);
    default:
      return 1.0f;
  }
}

// Where the results of one batch entry go.
template <typename T>
struct Results {
  device T* c;
  device const T* bias;
  device const T* residual;
  float alpha;
  float beta;

  Results(device T* all, device const T* biases, device const T* residuals, constant float* scales,
          thread const Problem& problem)
      : c(all + problem.starts[2]),
        bias(biases + problem.starts[3]),
        residual(residuals + problem.starts[4]),
        alpha(scales[0]),
        beta(scales[1]) {}

  void write(thread const Problem& problem, uint row, uint column, float sum) const thread {
    float value = alpha * sum;
    if (problem.flags & has_bias) value += beta * read(bias, problem.bias, row, column);
    if (problem.flags & is_gradient) {
      value = read(residual, problem.residual, row, column) * slope_at(problem.function, value);
    } else {
      value = activated(problem.function, value);
      if (problem.flags & has_residual) value += read(residual, problem.residual, row, column);
    }
    c[row * problem.c.row + column * problem.c.column] = T(value);
  }

  static float read(device const T* from, thread const Strides& strides, uint row, uint column) {
    return float(from[row * strides.row + column * strides.column]);
  }
};
