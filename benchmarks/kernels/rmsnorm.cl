// RMSNorm over rows: y = x / sqrt(mean(x^2) + epsilon) * weight, one work group a row.
// Without subgroups the sum is a tree in local memory.
kernel void rmsnorm(global const float* x, global const float* weight, global float* y,
                    const uint columns, const float epsilon) {
  local float partial[256];
  const uint in_group = get_local_id(0), group_size = get_local_size(0);
  global const float* x_row = x + get_group_id(0) * columns;
  global float* y_row = y + get_group_id(0) * columns;

  float squares = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) {
    const float value = x_row[column];
    squares += value * value;
  }
  partial[in_group] = squares;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = group_size / 2; half_size > 0; half_size /= 2) {
    if (in_group < half_size) partial[in_group] += partial[in_group + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float scale = rsqrt(partial[0] / columns + epsilon);
  for (uint column = in_group; column < columns; column += group_size)
    y_row[column] = x_row[column] * scale * weight[column];
}
