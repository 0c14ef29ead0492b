// counts_after_header, corrected: the header is padded to four bytes.
// expect: nothing
// launch: write_counts uint8[36]=zeros 4 threads=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void write_counts(device uchar* bytes,
                         constant uint& header,
                         uint in_grid [[thread_position_in_grid]]) {
  device uint* counts = (device uint*)(bytes + header);
  counts[in_grid] = in_grid;
}
