// SiLU over a flat array: y = x / (1 + exp(-x)), four values a work item.
kernel void silu(global const float4* x, global float4* y) {
  const size_t in_grid = get_global_id(0);
  const float4 value = x[in_grid];
  y[in_grid] = value / (1.0f + exp(-value));
}
