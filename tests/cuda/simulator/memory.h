// Loads, stores, atomics, and copies that come when they are waited for.
#pragma once
#include "numbers.h"

// `unchanging` is global memory that nobody writes during the launch (.nc); `own` is that of the
// thread, and of the module.
enum Space { shared, global, unchanging, generic, own };

INLINE void note(Thread& t, u32 place, const char* what) {
  if (!t.failure) t.failure = what, t.failed_at = place;
}
INLINE bool is_shared(Thread& t, u64 address) {
  return address - u64(t.block->shared) < t.block->shared_size;
}
INLINE u64 from_shared(Thread& t, u64 address) {
  return address - t.block->shared_base + u64(t.block->shared);
}
INLINE u64 to_shared(Thread& t, u64 address) {
  return address - u64(t.block->shared) + t.block->shared_base;
}
// Where the bytes are; what an access must not touch is told of, and goes to `sink`.
template <Space space>
INLINE u8* found(Thread& t, u32 place, u64 address, u32 size, u8* sink) {
  const char* wrong = nullptr;
  if (address % size != 0) wrong = "an address that is not aligned for the access";
  if (space == shared) {
    const u64 offset = address - t.block->shared_base;
    if (address < t.block->shared_base || offset + size > t.block->shared_size)
      wrong = "an access beyond the threadgroup's memory";
    address = u64(t.block->shared) + offset;
  } else if (address < 4096) {
    wrong = "an access near address 0";
  } else if (space != own && !t.has_waited) {
    wrong = "an access while the kernels in front may still run";
  } else if (space == unchanging && was_written(t, address, size)) {
    wrong = "memory that does not change (.nc) was written";
  }
  if (!wrong) return (u8*)address;
  note(t, place, wrong);
  return sink;
}
template <Space space, class T, u32 count, class... D>
INLINE void load(Thread& t, u32 place, u64 address, D&... into) {
  u8 sink[sizeof(T) * count];
  T values[count];
  __builtin_memcpy(values, found<space>(t, place, address, sizeof(T) * count, sink),
                   sizeof(values));
  u32 next = 0;
  ((into = D(values[next++])), ...);
}
template <Space space, class T, u32 count, class... A>
INLINE void store(Thread& t, u32 place, u64 address, A... from) {
  u8 sink[sizeof(T) * count];
  const T values[count] = {T(from)...};
  if (watches_writes && (space == global || space == generic))
    note_written(t, address, sizeof(values));
  __builtin_memcpy(found<space>(t, place, address, sizeof(T) * count, sink), values,
                   sizeof(values));
}

#define ON_BITS(U, type)                              \
  INLINE U and_##type(U old, U a) { return old & a; } \
  INLINE U or_##type(U old, U a) { return old | a; }  \
  INLINE U xor_##type(U old, U a) { return old ^ a; } \
  INLINE U exch_##type(U, U a) { return a; }          \
  INLINE U cas_##type(U old, U a, U b) { return old == a ? b : old; }
ON_BITS(u16, b16)
ON_BITS(u32, b32)
ON_BITS(u64, b64)
INLINE u32 inc_u32(u32 old, u32 a) { return old >= a ? 0 : old + 1; }
INLINE u32 dec_u32(u32 old, u32 a) { return old == 0 || old > a ? a : old - 1; }
INLINE u32 add_f32(u32 old, u32 a) { return bits<u32>(bits<f32>(old) + bits<f32>(a)); }
INLINE u64 add_f64(u64 old, u64 a) { return bits<u64>(bits<f64>(old) + bits<f64>(a)); }

struct b16 {
  typedef u16 word;
};
struct b32 {
  typedef u32 word;
};
struct b64 {
  typedef u64 word;
};
template <class T>
struct Word {
  typedef T word;
};
template <>
struct Word<b16> : b16 {};
template <>
struct Word<b32> : b32 {};
template <>
struct Word<b64> : b64 {};
template <>
struct Word<s32> {
  typedef u32 word;
};
template <>
struct Word<s64> {
  typedef u64 word;
};
template <>
struct Word<f32> {
  typedef u32 word;
};
template <>
struct Word<f64> {
  typedef u64 word;
};
template <Space space, class Type, class D, class Change>
INLINE void atomic(Thread& t, u32 place, u64 address, D& into, Change change) {
  typedef typename Word<Type>::word U;
  u8 sink[sizeof(U)] = {};
  if (watches_writes && (space == global || space == generic)) note_written(t, address, sizeof(U));
  u8* at = found<space>(t, place, address, sizeof(U), sink);
  U old;
  __builtin_memcpy(&old, at, sizeof(U));
  const U made = change(old);
  __builtin_memcpy(at, &made, sizeof(U));
  into = D(old);
}

INLINE void copy(Thread& t, u32 place, u64 to, u64 from, u32 size) {
  u8 sink[16];
  found<shared>(t, place, to, size, sink);
  found<global>(t, place, from, size, sink);
  add_copy(t, {from, u32(to), size, t.batches});
}
INLINE void commit(Thread& t) { ++t.batches; }
