// neighbouring_bytes, corrected: every thread has a byte of its own. Bytes that share a word are no
// race, however wide the machine's stores are.
// expect: nothing
// launch: signs float32[64]=range uint8[64]=zeros threads=64 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void signs(device const float* x,
                  device uchar* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = uchar(x[in_grid]);
}
