// Insertion into a sorted array of pairs.
// expect: nothing
// launch: k float32[4,16]=random float32[4]=zeros threads=4 group_size=4
#include <metal_stdlib>
using namespace metal;

struct Candidate { float score; ushort token; };
kernel void k(device const float* x, device float* out, uint row [[thread_position_in_grid]]) {
  Candidate top[5];
  for (uint n = 0; n < 5; ++n) top[n] = Candidate{-INFINITY, 0};
  for (uint c = 0; c < 16; ++c) {
    Candidate now; now.score = x[row * 16 + c]; now.token = ushort(c);
    for (uint n = 0; n < 5; ++n) if (now.score > top[n].score) { Candidate t = top[n]; top[n] = now; now = t; }
  }
  out[row] = top[4].token;
}
