// C = A B for row-major square matrices, one 32x32 tile of C a work group, tiles of A and B in
// local memory. The side is a multiple of 32.
#define TILE 32

kernel void matmul(global const float* a, global const float* b, global float* c, const uint side) {
  local float a_tile[TILE][TILE];
  local float b_tile[TILE][TILE];
  const uint x = get_local_id(0), y = get_local_id(1);
  const uint column = get_global_id(0), row = get_global_id(1);
  float sum = 0.0f;
  for (uint start = 0; start < side; start += TILE) {
    a_tile[y][x] = a[row * side + start + x];
    b_tile[y][x] = b[(start + y) * side + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[row * side + column] = sum;
}
