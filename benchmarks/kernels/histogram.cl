// How often each byte occurs: counts of the work group by atomics in local memory, then added to
// those of the grid. Four bytes a work item and turn.
#define BINS 256

kernel void histogram(global const uchar4* data, global uint* counts, const uint size) {
  local uint bins[BINS];
  const uint in_group = get_local_id(0), group_size = get_local_size(0);
  for (uint bin = in_group; bin < BINS; bin += group_size) bins[bin] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);

  for (uint index = get_global_id(0); index < size / 4; index += get_global_size(0)) {
    const uchar4 bytes = data[index];
    atomic_inc(&bins[bytes.x]);
    atomic_inc(&bins[bytes.y]);
    atomic_inc(&bins[bytes.z]);
    atomic_inc(&bins[bytes.w]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  for (uint bin = in_group; bin < BINS; bin += group_size) atomic_add(&counts[bin], bins[bin]);
}
