// search_that_stays, corrected: the lower end moves past the middle.
// expect: nothing
// launch: find float32[8]=0,1,2,3,4,5,6,7 int32[1]=zeros 4.5 8 threads=1 seconds=10
#include <metal_stdlib>
using namespace metal;

kernel void find(device const float* x,
                 device int* y,
                 constant float& value,
                 constant int& length) {
  int low = 0, high = length;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (x[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
    y[0] = low;
  }
}
