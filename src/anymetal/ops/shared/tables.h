// A table of tensors: one launch for nine of them, each cut into chunks of equal length.
//
// A threadgroup takes a chunk, its threads neighbouring elements: every access is coalesced, no
// tensor needs an alignment (but where a kernel takes four elements at once), and a chunk ends
// where its tensor does. Three buffers a tensor (what is written, a gradient and float32 states)
// leave four of Metal's 31 for everything else.
#pragma once
#include "shared/types.h"

constant constexpr uint TABLE = 9;

template <uint count>
struct Table {
  uint starts[count + 1];  // the first chunk of each tensor, then the number of chunks
  uint lengths[count];     // elements; tensors of none have no chunk
  uint chunk;
};

// The part of a tensor that a threadgroup takes: elements `begin` to `end` of `tensor`.
struct Chunk {
  uint tensor;
  uint begin;
  uint end;
};

template <uint count>
inline Chunk chunk_of(constant Table<count> &table, uint index) {
  Chunk chunk;
  chunk.tensor = 0;
  for (uint i = 1; i < count; ++i) chunk.tensor += index >= table.starts[i] ? 1 : 0;
  chunk.begin = (index - table.starts[chunk.tensor]) * table.chunk;
  chunk.end = min(chunk.begin + table.chunk, table.lengths[chunk.tensor]);
  return chunk;
}

// Buffers 0 to 26: what is written, its gradient and its states, tensor by tensor. A place that no
// tensor takes is given one of the others, and no chunk is in it.
#define TABLE_BUFFERS(T, G)                                                                     \
  device T *p0 [[buffer(0)]], device const G *g0 [[buffer(1)]], device float *s0 [[buffer(2)]], \
      device T *p1 [[buffer(3)]], device const G *g1 [[buffer(4)]],                             \
      device float *s1 [[buffer(5)]], device T *p2 [[buffer(6)]],                               \
      device const G *g2 [[buffer(7)]], device float *s2 [[buffer(8)]],                         \
      device T *p3 [[buffer(9)]], device const G *g3 [[buffer(10)]],                            \
      device float *s3 [[buffer(11)]], device T *p4 [[buffer(12)]],                             \
      device const G *g4 [[buffer(13)]], device float *s4 [[buffer(14)]],                       \
      device T *p5 [[buffer(15)]], device const G *g5 [[buffer(16)]],                           \
      device float *s5 [[buffer(17)]], device T *p6 [[buffer(18)]],                             \
      device const G *g6 [[buffer(19)]], device float *s6 [[buffer(20)]],                       \
      device T *p7 [[buffer(21)]], device const G *g7 [[buffer(22)]],                           \
      device float *s7 [[buffer(23)]], device T *p8 [[buffer(24)]],                             \
      device const G *g8 [[buffer(25)]], device float *s8 [[buffer(26)]]

// One of the buffers called `name`: all threads of a threadgroup choose the same.
#define OF_TABLE(name, tensor) \
  ((tensor) == 0   ? name##0   \
   : (tensor) == 1 ? name##1   \
   : (tensor) == 2 ? name##2   \
   : (tensor) == 3 ? name##3   \
   : (tensor) == 4 ? name##4   \
   : (tensor) == 5 ? name##5   \
   : (tensor) == 6 ? name##6   \
   : (tensor) == 7 ? name##7   \
                   : name##8)

// Instances: <name>_<dtype>, and <name>_<dtype>_float where the gradients of shorter types are
// float32.
#define TABLE_INSTANCE(name, T, G, suffix) \
  template [[host_name(#name "_" suffix)]] [[kernel]] decltype(name<T, G>) name<T, G>;
#define TABLE_INSTANCES(name)                     \
  TABLE_INSTANCE(name, float, float, "float")     \
  TABLE_INSTANCE(name, half, half, "half")        \
  TABLE_INSTANCE(name, half, float, "half_float") \
  TABLE_INSTANCE(name, bfloat, bfloat, "bfloat")  \
  TABLE_INSTANCE(name, bfloat, float, "bfloat_float")

// The same for kernels of one element a step, or of four: lengths divide by that, tensors and the
// rows of their states are aligned to it. <name>_vec4_<dtype>.
#define TABLE_INSTANCE_OF_WIDTH(name, T, G, width, suffix) \
  template [[host_name(#name "_" suffix)]] [[kernel]]      \
  decltype(name<T, G, width>) name<T, G, width>;
#define TABLE_INSTANCES_OF_WIDTH(name, width, word)                    \
  TABLE_INSTANCE_OF_WIDTH(name, float, float, width, word "float")     \
  TABLE_INSTANCE_OF_WIDTH(name, half, half, width, word "half")        \
  TABLE_INSTANCE_OF_WIDTH(name, half, float, width, word "half_float") \
  TABLE_INSTANCE_OF_WIDTH(name, bfloat, bfloat, width, word "bfloat")  \
  TABLE_INSTANCE_OF_WIDTH(name, bfloat, float, width, word "bfloat_float")
