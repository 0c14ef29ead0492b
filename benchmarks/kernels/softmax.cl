// Softmax over rows: y = exp(x - max) / sum(exp(x - max)), one work group a row.
// Without subgroups maximum and sum are trees in local memory.
kernel void softmax(global const float* x, global float* y, const uint columns) {
  local float partial[256];
  const uint in_group = get_local_id(0), group_size = get_local_size(0);
  global const float* x_row = x + get_group_id(0) * columns;
  global float* y_row = y + get_group_id(0) * columns;

  float largest = -3.0e38f;  // finite, so that relaxed math is allowed
  for (uint column = in_group; column < columns; column += group_size)
    largest = fmax(largest, x_row[column]);
  partial[in_group] = largest;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = group_size / 2; half_size > 0; half_size /= 2) {
    if (in_group < half_size)
      partial[in_group] = fmax(partial[in_group], partial[in_group + half_size]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  largest = partial[0];
  barrier(CLK_LOCAL_MEM_FENCE);

  float sum = 0.0f;
  for (uint column = in_group; column < columns; column += group_size)
    sum += exp(x_row[column] - largest);
  partial[in_group] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = group_size / 2; half_size > 0; half_size /= 2) {
    if (in_group < half_size) partial[in_group] += partial[in_group + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float scale = 1.0f / partial[0];

  for (uint column = in_group; column < columns; column += group_size)
    y_row[column] = exp(x_row[column] - largest) * scale;
}
