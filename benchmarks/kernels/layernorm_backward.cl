// The gradient of LayerNorm over rows by its input, one work group a row: see
// layernorm_backward.metal. Without subgroups the two sums are a tree in local memory.
kernel void layernorm_backward(global const float* dy, global const float* x,
                               global const float* weight, global const float* means,
                               global const float* scales, global float* dx, const uint columns) {
  local float2 partial[256];
  const uint in_group = get_local_id(0), group_size = get_local_size(0), row = get_group_id(0);
  global const float* dy_row = dy + row * columns;
  global const float* x_row = x + row * columns;
  global float* dx_row = dx + row * columns;
  const float mean = means[row], scale = scales[row];

  float2 sums = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) {
    const float gradient = dy_row[column] * weight[column];
    const float normalised = (x_row[column] - mean) * scale;
    sums += (float2)(gradient, gradient * normalised);
  }
  partial[in_group] = sums;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = group_size / 2; half_size > 0; half_size /= 2) {
    if (in_group < half_size) partial[in_group] += partial[in_group + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  sums = partial[0] / (float)columns;

  for (uint column = in_group; column < columns; column += group_size) {
    const float gradient = dy_row[column] * weight[column];
    const float normalised = (x_row[column] - mean) * scale;
    dx_row[column] = scale * (gradient - sums.x - normalised * sums.y);
  }
}
