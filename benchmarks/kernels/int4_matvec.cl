// y = W x for 4-bit weights, 32 work items a row: see int4_matvec.metal. Without subgroups the sum
// is a tree in local memory, one for each row of the work group.
#define ROWS 8

kernel void int4_matvec(global const uint* weights, global const float* scales,
                        global const float4* x, global float* y, const uint columns) {
  local float partial[ROWS][32];
  const uint lane = get_local_id(0) % 32, part = get_local_id(0) / 32;
  const uint row = get_group_id(0) * ROWS + part;
  const uint words = columns / 8;
  global const uint* weights_row = weights + row * words;
  global const float* scales_row = scales + row * (columns / 32);

  float sum = 0.0f;
  for (uint index = lane; index < words; index += 32) {
    const uint word = weights_row[index];
    const uint4 first = (uint4)(word, word >> 4, word >> 8, word >> 12) & 15u;
    const uint4 second = (uint4)(word >> 16, word >> 20, word >> 24, word >> 28) & 15u;
    const float4 low = convert_float4(first) - 8.0f, high = convert_float4(second) - 8.0f;
    sum += scales_row[index / 4] * (dot(low, x[2 * index]) + dot(high, x[2 * index + 1]));
  }
  partial[part][lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = 16; half_size > 0; half_size /= 2) {
    if (lane < half_size) partial[part][lane] += partial[part][lane + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0) y[row] = partial[part][0];
}
