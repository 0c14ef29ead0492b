// One query row a work group against its first `lengths[row]` keys, head dimension 64, 128 work
// items. The same plan as attention.metal; without subgroups, maximum and sum are trees in local
// memory.
#define HEAD 64
#define THREADS 128
#define LOWEST -3.0e38f  // finite, so that relaxed math is allowed

kernel void attention(global const float* queries, global const float* keys,
                      global const float* values, global float* output, global const int* lengths,
                      const float scale) {
  local float query[HEAD];
  local float weights[THREADS];
  local float tree[THREADS];
  local float upper[HEAD];
  const uint row = get_group_id(0), in_group = get_local_id(0);
  const int length = lengths[row];
  const uint column = in_group % HEAD, part = in_group / HEAD;

  if (in_group < HEAD) query[in_group] = queries[row * HEAD + in_group] * scale;
  barrier(CLK_LOCAL_MEM_FENCE);

  float maximum = LOWEST, sum = 0.0f, result = 0.0f;
  for (int start = 0; start < length; start += THREADS) {
    const int key = start + (int)in_group;
    float score = LOWEST;
    if (key < length) {
      score = 0.0f;
      for (uint i = 0; i < HEAD; ++i) score += query[i] * keys[key * HEAD + i];
    }
    tree[in_group] = score;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = THREADS / 2; half_size > 0; half_size /= 2) {
      if (in_group < half_size) tree[in_group] = fmax(tree[in_group], tree[in_group + half_size]);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float raised = fmax(maximum, tree[0]);
    const float weight = exp(score - raised);
    weights[in_group] = weight;
    barrier(CLK_LOCAL_MEM_FENCE);
    tree[in_group] = weight;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = THREADS / 2; half_size > 0; half_size /= 2) {
      if (in_group < half_size) tree[in_group] += tree[in_group + half_size];
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float shrink = exp(maximum - raised);
    maximum = raised;
    sum = sum * shrink + tree[0];
    result *= shrink;
    const int first = (int)(part * HEAD);
    const int count = min(HEAD, length - start - first);
    for (int i = 0; i < count; ++i)
      result += weights[first + i] * values[(start + first + i) * HEAD + column];
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  if (part == 1) upper[column] = result;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (part == 0) output[row * HEAD + column] = (result + upper[column]) / sum;
}
