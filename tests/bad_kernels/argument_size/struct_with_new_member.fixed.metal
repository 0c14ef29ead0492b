// The caller packs the struct as it is.
// expect: nothing
// launch: pad float32[16]=random float32[16]=zeros uint8[28]=0
// launch: outputs=1 threads=16
#include <metal_stdlib>
using namespace metal;

struct Shape {
  int rows;
  int columns;
  float scale;
  int padding[4];
};

kernel void pad(device const float* x,
                device float* y,
                constant Shape& shape,
                uint in_grid [[thread_position_in_grid]]) {
  int place = int(in_grid) - shape.padding[3];
  y[in_grid] = place >= 0 && place < shape.columns ? x[place] * shape.scale : 0.0f;
}
