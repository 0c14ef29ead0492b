// LayerNorm over rows: y = (x - mean) / sqrt(variance + epsilon) * weight + bias, one work group a
// row. Without subgroups sums are trees in local memory.
void add_up(local float* partial, uint in_group, uint group_size) {
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = group_size / 2; half_size > 0; half_size /= 2) {
    if (in_group < half_size) partial[in_group] += partial[in_group + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

kernel void layernorm(global const float* x, global const float* weight, global const float* bias,
                      global float* y, const uint columns, const float epsilon) {
  local float sums[256];
  local float squares[256];
  const uint in_group = get_local_id(0), group_size = get_local_size(0);
  global const float* x_row = x + get_group_id(0) * columns;
  global float* y_row = y + get_group_id(0) * columns;

  float sum = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) sum += x_row[column];
  sums[in_group] = sum;
  add_up(sums, in_group, group_size);
  const float mean = sums[0] / columns;

  float square = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) {
    const float centred = x_row[column] - mean;
    square += centred * centred;
  }
  squares[in_group] = square;
  add_up(squares, in_group, group_size);
  const float scale = rsqrt(squares[0] / columns + epsilon);

  for (uint column = in_group; column < columns; column += group_size)
    y_row[column] = (x_row[column] - mean) * scale * weight[column] + bias[column];
}
