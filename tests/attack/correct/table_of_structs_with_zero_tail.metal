// expect: nothing
// launch: k float32[16]=zeros threads=16 group_size=16
#include <metal_stdlib>
using namespace metal;

struct Row { float a; uchar b; };
constant Row T[16] = {{1, 2}, {3, 4}};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) { Row r = T[i]; out[i] = r.a + r.b; }
