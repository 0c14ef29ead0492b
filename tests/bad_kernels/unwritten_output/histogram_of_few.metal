// A flag for each value that is there: the flags of the others are left as they were.
// expect: unwritten_output warning line 9 buffer bins index 4 count 4
// expect: race warning line 11 other 11 buffer bins
// launch: count int32[8]=0,1,1,2,2,2,3,3 int32[8]=zeros threads=8
#include <metal_stdlib>
using namespace metal;

kernel void count(device const int* x,
                  device int* bins,
                  uint i [[thread_position_in_grid]]) {
  bins[x[i]] = 1;
}
