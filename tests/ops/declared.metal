// Kernels of the operators that test_declare.py declares.
#include "shared/rows.h"
#include "shared/vectors.h"

struct Step {
  uint columns;
  long strides[2];
  float rate;
};

template <typename T, uint width>
[[kernel]] void descend(device const T* gradient [[buffer(0)]], device T* parameter [[buffer(1)]],
                        constant Step& rows [[buffer(2)]],
                        uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x * width;
  gradient += in_grid.y * rows.strides[0] + column;
  parameter += in_grid.y * rows.strides[1] + column;
  for (uint i = 0; i < min(width, rows.columns - column); ++i)
    parameter[i] = T(float(parameter[i]) - rows.rate * float(gradient[i]));
}

#define DESCEND(T)                                                                          \
  template [[host_name("descend_vec4_" #T)]] [[kernel]] decltype(descend<T, 4>) descend<T, 4>; \
  template [[host_name("descend_scalar_" #T)]] [[kernel]] decltype(descend<T, 1>) descend<T, 1>;
DESCEND(float)
DESCEND(half)
DESCEND(bfloat)
