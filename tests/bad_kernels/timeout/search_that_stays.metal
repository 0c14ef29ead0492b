// A binary search that moves its lower end to the middle: with two elements left, it stays there.
// expect: timeout error line 7
// launch: find float32[8]=0,1,2,3,4,5,6,7 int32[1]=zeros 4.5 8 threads=1 seconds=0.5
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
      low = middle;
    } else {
      high = middle;
    }
    y[0] = low;
  }
}
