// logarithm_of_probability, corrected: probabilities are kept above a small bound.
// expect: nothing
// launch: log_likelihood float32[4]=0.5,1,-1e-7,0.25 float32[4]=zeros threads=4 nan
#include <metal_stdlib>
using namespace metal;

kernel void log_likelihood(device const float* p,
                           device float* y,
                           uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = log(max(p[in_grid], 1e-10f));
}
