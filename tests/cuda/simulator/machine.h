// What a thread of the simulator is, and how it stops: shared by kernels (waiting.h) and by what
// runs them (machine.cpp).
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long s64;

constexpr u32 at_start = ~0u, warp_size = 32, max_when = 24;

enum class Stop : u32 {
  ended,
  failed,
  resting,  // has gone round for long, and lets others run
  barrier,
  warp_barrier,
  shuffle,
  vote,
  reduction,
  match,
  active,
  matrix_load,
  matrix_transposition,
  matrix_product,
};

enum class Vote : u32 { any, all, uni, ballot };
enum class Shuffle : u32 { idx, up, down, bfly };
enum class Reduction : u32 { add, min_u, max_u, min_s, max_s, bits_and, bits_or, bits_xor };
enum class Element : u32 { half, bfloat };

// What a thread waits for.
struct Request {
  Stop stop;
  u32 place;  // the line of the text
  u32 mask;   // of the lanes that have to come; of those of `active`, none
  u32 how;    // one of the enumerations, or the number of a barrier
  u32 count;  // of matrices, or of threads at a barrier
  u32 more;   // of a shuffle, its bounds; of a product, elements along k; whether transposed
  u64 in[10];
  u32 when[max_when];  // the turn of `active`
  u32* out[4];
  u8* out_predicate;
};

// 16 bytes or fewer on their way to shared memory; of one thread.
struct Copy {
  u64 from;
  u32 to, size, batch;
};

struct Block {
  u32 position[3], groups[3];
  u32 width;
  u32 shared_base, shared_size;
  u8* shared;
  const u8* parameter;
  struct Written* written;
};

struct Thread {
  u32 at, index;
  u32 rounds;
  bool carry, has_waited;
  Block* block;
  const char* failure;
  u32 failed_at;
  Request request;
  Copy* copies;
  u32 copy_count, copy_room, batches;
};

extern "C" {
u64 now();
void arrive(Thread& t, u32 batches);  // until so many batches of copies are on their way
void add_copy(Thread& t, Copy copy);
void note_written(Thread& t, u64 address, u32 size);
bool was_written(Thread& t, u64 address, u32 size);
}
