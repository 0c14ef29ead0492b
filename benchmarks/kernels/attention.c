// One query against its first `lengths[row]` keys, head dimension 64; a piece is a query.
#include "vector.h"

#define HEAD 64
#define PARTS (HEAD / WIDTH)
#define BLOCK 128

void attention(void* const* arguments, long begin, long end) {
  const float *queries = arguments[0], *keys = arguments[1], *values = arguments[2];
  float* output = arguments[3];
  const int* lengths = arguments[4];
  const float scale = *(const float*)arguments[5];
  for (long row = begin; row < end; ++row) {
    vec query[PARTS], result[PARTS] = {{0}};
    for (int part = 0; part < PARTS; ++part)
      query[part] = load(queries + row * HEAD + part * WIDTH) * scale;
    float largest = -3.0e38f, sum = 0.0f;
    for (int start = 0; start < lengths[row]; start += BLOCK) {
      const int count = lengths[row] - start < BLOCK ? lengths[row] - start : BLOCK;
      float weights[BLOCK];
      float raised = largest;
      for (int i = 0; i < BLOCK; ++i) weights[i] = -3.0e38f;
      for (int i = 0; i < count; ++i) {
        const float* key = keys + (long)(start + i) * HEAD;
        vec dot = query[0] * load(key);
        for (int part = 1; part < PARTS; ++part) dot += query[part] * load(key + part * WIDTH);
        weights[i] = sum_of(dot);
        raised = weights[i] > raised ? weights[i] : raised;
      }
      vec total = {0};
      for (int i = 0; i < BLOCK; i += WIDTH) {
        const vec weight = exponential(load(weights + i) - raised);
        store(weights + i, weight);
        total += i + WIDTH <= count ? weight : splat(0.0f);
      }
      float rest = sum_of(total);
      for (int i = count / WIDTH * WIDTH; i < count; ++i) rest += weights[i];
      const float shrink = exponential(splat(largest - raised))[0];
      sum = sum * shrink + rest;
      largest = raised;
      for (int part = 0; part < PARTS; ++part) result[part] *= shrink;
      for (int i = 0; i < count; ++i) {
        const float* value = values + (long)(start + i) * HEAD;
        for (int part = 0; part < PARTS; ++part)
          result[part] += weights[i] * load(value + part * WIDTH);
      }
    }
    for (int part = 0; part < PARTS; ++part)
      store(output + row * HEAD + part * WIDTH, result[part] / sum);
  }
}
