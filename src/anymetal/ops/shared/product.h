// What a kernel is told about a product C = A B: sizes, where the operands lie, and what becomes of
// a sum before it is written: f(alpha * sum + beta * bias) + residual.
#pragma once
#include "shared/activations.h"
#include "shared/vectors.h"

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
  bool in_fours;     // four neighbouring results of a row are one aligned vector of C
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

  // One result, or four neighbouring ones of a row. Of four, those past the last column are not
  // written.
  template <typename V>
  void write(constant Numbers& numbers, uint row, uint column, V sum) const thread {
    V value = numbers.alpha * sum;
    if (numbers.has_bias) value += numbers.beta * read<V>(bias, numbers.bias, row, column, numbers);
    if (numbers.is_gradient) {
      value = read<V>(residual, numbers.residual, row, column, numbers) *
              slope_at(numbers.activation, value);
    } else {
      value = activated(numbers.activation, value);
      if (numbers.has_residual) value += read<V>(residual, numbers.residual, row, column, numbers);
    }
    put(numbers, row, column, value);
  }

 private:
  void put(constant Numbers& numbers, uint row, uint column, float value) const thread {
    // anymetal: allow(aliasing) a thread has read the bias there before it writes the result
    c[row * numbers.c.row + column * numbers.c.column] = T(value);
  }

  void put(constant Numbers& numbers, uint row, uint column, float4 values) const thread {
    if (numbers.in_fours) {
      Width<4>::store(c + row * numbers.c.row + column, values);
      return;
    }
#pragma unroll
    for (uint i = 0; i < 4; ++i)
      if (column + i < numbers.n) put(numbers, row, column + i, values[i]);
  }

  template <typename V>
  static V read(device const T* from, constant Strides& strides, uint row, uint column,
                constant Numbers& numbers) {
    from += row * strides.row;
    if constexpr (sizeof(V) == sizeof(float)) {
      return float(from[column * strides.column]);
    } else {
      V values;
#pragma unroll
      for (uint i = 0; i < 4; ++i)
        values[i] = float(from[min(column + i, numbers.n - 1) * strides.column]);
      return values;
    }
  }
};
