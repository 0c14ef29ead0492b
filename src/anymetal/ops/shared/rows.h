// Rows of neighbouring elements, as the host describes them to kernels over elements.
#pragma once

// Rows of tensor i lie `strides[i]` elements apart; 0 repeats a row.
template <uint count>
struct Rows {
  uint columns;
  long strides[count];
};
