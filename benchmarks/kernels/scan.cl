// Inclusive sums along rows, one work group of 256 a row, four columns a work item and step: see
// scan.metal. Without subgroups the sums of the work items are scanned in local memory, by
// doubling.
#define THREADS 256

kernel void scan(global const float4* x, global float4* y, const uint columns) {
  local float totals[2][THREADS];
  const uint in_group = get_local_id(0), vectors = columns / 4;
  global const float4* x_row = x + get_group_id(0) * vectors;
  global float4* y_row = y + get_group_id(0) * vectors;

  float before = 0.0f;
  for (uint start = 0; start < vectors; start += THREADS) {
    float4 value = x_row[start + in_group];
    value.y += value.x;
    value.z += value.y;
    value.w += value.z;
    uint side = 0;
    totals[0][in_group] = value.w;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint distance = 1; distance < THREADS; distance *= 2) {
      const float lower = in_group >= distance ? totals[side][in_group - distance] : 0.0f;
      totals[side ^ 1][in_group] = totals[side][in_group] + lower;
      side ^= 1;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float lower = before + (in_group > 0 ? totals[side][in_group - 1] : 0.0f);
    y_row[start + in_group] = value + lower;
    before += totals[side][THREADS - 1];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
