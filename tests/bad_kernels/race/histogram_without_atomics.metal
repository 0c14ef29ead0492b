// Bins counted with plain additions: two threads that meet in a bin lose a count.
// expect: race error line 10 other 10 buffer bins
// launch: histogram int32[8]=1,3,1,0,2,3,1,1 int32[4]=zeros threads=8
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const int* values,
                      device int* bins,
                      uint in_grid [[thread_position_in_grid]]) {
  bins[values[in_grid]] += 1;
}
