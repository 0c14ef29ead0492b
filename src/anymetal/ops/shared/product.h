// What a kernel is told about a product C = A B: sizes, where the operands lie, and what becomes of
// a sum before it is written: f(alpha * sum + beta * bias) + residual.
#pragma once
#include "shared/activations.h"

// Element (row, column) of an operand stands at row * `row` + column * `column`.
struct Strides {
  long row;
  long column;
};

constant constexpr uint batch_dimensions = 4;

// What the host passes. The operands of the batch's strides are A, B, C, bias and residual.
struct Numbers {
  uint m;
  uint n;
  uint k;
  uint at_once;  // the part of k that is summed up at once
  uint split;    // simdgroups that share a part of C
  Activation activation;
  bool has_bias;
  bool has_residual;
  bool is_gradient;  // the residual is multiplied by the slope of f instead of added to its value
  float alpha;
  float beta;
  Strides a, b, c, bias, residual;
  uint batch[batch_dimensions];
  long batch_strides[batch_dimensions][5];
};

// Where a batch entry begins in each operand.
struct Starts {
  long a, b, c, bias, residual;

  Starts(constant Numbers& numbers, uint entry) : a(0), b(0), c(0), bias(0), residual(0) {
    for (uint i = batch_dimensions; i > 0; --i) {
      const uint at = entry % numbers.batch[i - 1];
      constant long* strides = numbers.batch_strides[i - 1];
      a += at * strides[0];
      b += at * strides[1];
      c += at * strides[2];
      bias += at * strides[3];
      residual += at * strides[4];
      entry /= numbers.batch[i - 1];
    }
  }
};

// Where the results of one batch entry go.
template <typename T>
struct Results {
  device T* c;
  device const T* bias;
  device const T* residual;

  Results(device T* all, device const T* biases, device const T* residuals,
          thread const Starts& starts)
      : c(all + starts.c), bias(biases + starts.bias), residual(residuals + starts.residual) {}

  void write(constant Numbers& numbers, uint row, uint column, float sum) const thread {
    float value = numbers.alpha * sum;
    if (numbers.has_bias) value += numbers.beta * read(bias, numbers.bias, row, column);
    if (numbers.is_gradient) {
      value = read(residual, numbers.residual, row, column) * slope_at(numbers.activation, value);
    } else {
      value = activated(numbers.activation, value);
      if (numbers.has_residual) value += read(residual, numbers.residual, row, column);
    }
    // anymetal: allow(aliasing) a thread has read the bias there before it writes the result
    c[row * numbers.c.row + column * numbers.c.column] = T(value);
  }

  static float read(device const T* from, constant Strides& strides, uint row, uint column) {
    return float(from[row * strides.row + column * strides.column]);
  }
};
