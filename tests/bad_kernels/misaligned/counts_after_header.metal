// 32-bit counts behind a header of two bytes.
// expect: misaligned error line 11 buffer bytes
// launch: write_counts uint8[34]=zeros 2 threads=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void write_counts(device uchar* bytes,
                         constant uint& header,
                         uint in_grid [[thread_position_in_grid]]) {
  device uint* counts = (device uint*)(bytes + header);
  counts[in_grid] = in_grid;
}
