// The product of two 8x8 matrices that lie spread over the lanes of a simdgroup.
//
// Each lane holds two neighbouring elements of one row. A product is computed in float: one fused
// multiply-add after the other, from column 0 of the left matrix to column 7, starting from the
// accumulator. Only the final value is rounded to the result's type. (How Apple's hardware rounds
// in between is not known.)
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/lanes.h>

#include <metal_types>

#pragma float_control(precise, on, push)

// The row and the first of the two columns of a lane's elements.
AM_INLINE unsigned am_matrix_row(unsigned lane) { return (lane / 4 & 4) + lane / 2 % 4; }
AM_INLINE unsigned am_matrix_column(unsigned lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }
// Where that pair stands among the 32 pairs of a matrix in row order.
AM_INLINE unsigned am_matrix_pair(unsigned lane) {
  return am_matrix_row(lane) * 4 + am_matrix_column(lane) / 2;
}

// Each target's own. am_matrix_multiply<R>(a, b, c): this lane's two elements of a * b + c.
// am_matrix_loaded(matrix, elements_per_row, transposed, own): those of a matrix in memory, where
// `own` are the ones that this lane has read by itself.
#include <anymetal/matrix_product.h>

#pragma float_control(pop)

#endif
