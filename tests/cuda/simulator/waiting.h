// What a thread does together with others: it says what it waits for, and leaves.
#pragma once
#include "memory.h"

INLINE Request& request(Thread& t, Stop stop, u32 place, u32 mask) {
  Request& made = t.request;
  made.stop = stop, made.place = place, made.mask = mask;
  made.how = made.count = made.more = 0;
  made.out_predicate = nullptr;
  return made;
}
INLINE void end(Thread& t) { request(t, Stop::ended, 0, 0); }
INLINE void rest(Thread& t, u32 place) { request(t, Stop::resting, place, 0); }
INLINE void fail(Thread& t, u32 place, const char* why) {
  note(t, place, why);
  request(t, Stop::failed, place, 0);
}
INLINE void barrier(Thread& t, u32 place, u32 number, u32 count) {
  Request& made = request(t, Stop::barrier, place, 0);
  made.how = number, made.count = count;
}
INLINE void warp_barrier(Thread& t, u32 place, u32 mask) {
  request(t, Stop::warp_barrier, place, mask);
}
template <class... Numbers>
INLINE void active(Thread& t, u32 place, u32& mask, Numbers... when) {
  static_assert(sizeof...(when) <= max_when);
  Request& made = request(t, Stop::active, place, 0);
  made.out[0] = &mask;
  u32 next = 0;
  ((made.when[next++] = u32(when)), ...);
  while (next < max_when) made.when[next++] = 0;
}
INLINE void shuffle(Thread& t, u32 place, Shuffle how, u32& d, u8* p, u32 a, u32 b, u32 c, u32 m) {
  Request& made = request(t, Stop::shuffle, place, m);
  made.how = u32(how), made.out[0] = &d, made.out_predicate = p;
  made.in[0] = a, made.in[1] = b, made.more = c;
}
#define SHUFFLE(name)                                                                              \
  INLINE void shfl_##name##_b32(Thread& t, u32 place, u32& d, u32 a, u32 b, u32 c, u32 m) {        \
    shuffle(t, place, Shuffle::name, d, nullptr, a, b, c, m);                                      \
  }                                                                                                \
  INLINE void shfl_##name##_b32(Thread& t, u32 place, u32& d, u8& p, u32 a, u32 b, u32 c, u32 m) { \
    shuffle(t, place, Shuffle::name, d, &p, a, b, c, m);                                           \
  }
SHUFFLE(idx)
SHUFFLE(up)
SHUFFLE(down)
SHUFFLE(bfly)
#define VOTE(name)                                                            \
  INLINE void vote_##name##_pred(Thread& t, u32 place, u8& d, s32 p, u32 m) { \
    Request& made = request(t, Stop::vote, place, m);                         \
    made.how = u32(Vote::name), made.in[0] = p != 0, made.out_predicate = &d; \
  }
VOTE(any)
VOTE(all)
VOTE(uni)
INLINE void vote_ballot_b32(Thread& t, u32 place, u32& d, s32 p, u32 m) {
  Request& made = request(t, Stop::vote, place, m);
  made.how = u32(Vote::ballot), made.in[0] = p != 0, made.out[0] = &d;
}
#define REDUCE(name, kind)                                               \
  INLINE void redux_##name(Thread& t, u32 place, u32& d, u32 a, u32 m) { \
    Request& made = request(t, Stop::reduction, place, m);               \
    made.how = u32(Reduction::kind), made.in[0] = a, made.out[0] = &d;   \
  }
REDUCE(add_s32, add)
REDUCE(add_u32, add)
REDUCE(min_u32, min_u)
REDUCE(max_u32, max_u)
REDUCE(min_s32, min_s)
REDUCE(max_s32, max_s)
REDUCE(and_b32, bits_and)
REDUCE(or_b32, bits_or)
REDUCE(xor_b32, bits_xor)
INLINE void match_any_b32(Thread& t, u32 place, u32& d, u32 a, u32 m) {
  Request& made = request(t, Stop::match, place, m);
  made.in[0] = a, made.out[0] = &d;
}
INLINE void match_any_b64(Thread& t, u32 place, u32& d, u64 a, u32 m) {
  Request& made = request(t, Stop::match, place, m);
  made.in[0] = a, made.out[0] = &d;
}

// Matrices: all lanes of a warp have to be there.
constexpr u32 everyone = ~0u;
template <class... D>
INLINE void fetch(Thread& t, u32 place, bool transposed, u64 address, D&... d) {
  Request& made = request(t, Stop::matrix_load, place, everyone);
  u8 sink[16];
  found<shared>(t, place, address, 16, sink);
  made.in[0] = address, made.more = transposed, made.count = sizeof...(D);
  u32 next = 0;
  ((made.out[next++] = &d), ...);
}
#define FETCH(name, transposed)                                                                  \
  INLINE void ldmatrix_m8n8_x1_##name##b16(Thread& t, u32 place, u32& a, u64 from) {             \
    fetch(t, place, transposed, from, a);                                                        \
  }                                                                                              \
  INLINE void ldmatrix_m8n8_x2_##name##b16(Thread& t, u32 place, u32& a, u32& b, u64 from) {     \
    fetch(t, place, transposed, from, a, b);                                                     \
  }                                                                                              \
  INLINE void ldmatrix_m8n8_x4_##name##b16(Thread& t, u32 place, u32& a, u32& b, u32& c, u32& d, \
                                           u64 from) {                                           \
    fetch(t, place, transposed, from, a, b, c, d);                                               \
  }
FETCH(shared_, false)
FETCH(trans_shared_, true)
INLINE void movmatrix_m8n8_trans_b16(Thread& t, u32 place, u32& d, u32 a) {
  Request& made = request(t, Stop::matrix_transposition, place, everyone);
  made.in[0] = a, made.out[0] = &d;
}
template <class... A>
INLINE void multiply(Thread& t, u32 place, Element kind, u32 along_k, u32& a, u32& b, u32& c,
                     u32& d, A... in) {
  Request& made = request(t, Stop::matrix_product, place, everyone);
  made.how = u32(kind), made.more = along_k;
  made.out[0] = &a, made.out[1] = &b, made.out[2] = &c, made.out[3] = &d;
  u32 next = 0;
  ((made.in[next++] = in), ...);
}
#define MULTIPLY(type, kind)                                                                      \
  INLINE void mma_m16n8k8_row_col_f32_##type##_##type##_f32(Thread& t, u32 place, u32& a, u32& b, \
                                                            u32& c, u32& d, u32 e, u32 f, u32 g,  \
                                                            u32 h, u32 i, u32 j, u32 k) {         \
    multiply(t, place, kind, 8, a, b, c, d, e, f, g, h, i, j, k);                                 \
  }                                                                                               \
  INLINE void mma_m16n8k16_row_col_f32_##type##_##type##_f32(                                     \
      Thread& t, u32 place, u32& a, u32& b, u32& c, u32& d, u32 e, u32 f, u32 g, u32 h, u32 i,    \
      u32 j, u32 k, u32 l, u32 m, u32 n) {                                                        \
    multiply(t, place, kind, 16, a, b, c, d, e, f, g, h, i, j, k, l, m, n);                       \
  }
MULTIPLY(f16, Element::half)
MULTIPLY(bf16, Element::bfloat)
