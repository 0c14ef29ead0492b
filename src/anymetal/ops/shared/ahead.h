// Memory that is fetched ahead of its use, and such as is read or written once, where a device can
// be told; words that are not worth keeping what was computed from them; and what is asked for long
// before it is needed.
#pragma once
#include "shared/types.h"
#if __has_include(<anymetal/ahead.h>)
#include <anymetal/ahead.h>
#endif

// Somebody will soon read what lies around `from`: a line of 128 bytes.
inline void fetch_ahead(device const void* from) {
#ifdef anymetal_fetch_ahead
  anymetal_fetch_ahead(from);
#endif
}

// What nobody reads again.
inline uint4 read_once(device const uint4* from) {
#ifdef anymetal_read_once
  uint words[4];
  anymetal_read_once(words, from);
  return uint4(words[0], words[1], words[2], words[3]);
#else
  return *from;
#endif
}

// Words of which a compiler no longer knows what was computed from them; `zero` is 0, which it must
// not know either.
inline uint4 forgotten(uint4 words, uint zero) {
#ifdef anymetal_forget
  anymetal_forget(words.x, words.y, words.z, words.w);
  return words;
#else
  return words ^ zero;
#endif
}

// Where what nobody reads soon goes to.
inline void write_once(device uint4* to, uint4 words) {
#ifdef anymetal_write_once
  anymetal_write_once(to, words.x, words.y, words.z, words.w);
#else
  *to = words;
#endif
}

// A thread's own places for what is on its way, 16 bytes each. `threads` is the most that a
// threadgroup has. Where a device has no such places, it is read when it is taken.
template <uint slots, uint threads>
struct Asked {
  static constexpr constant uint bytes = slots * threads * 16;  // of a threadgroup

  static void ask(uint slot, device const void* from) {
#ifdef anymetal_ask
    anymetal_ask(slots, threads, slot, from);
#endif
  }
  // What was asked for since the last call is a batch.
  static void close() {
#ifdef anymetal_asked
    anymetal_asked();
#endif
  }
  // Until no more than so many batches are on their way.
  static void await(uint batches) {
#ifdef anymetal_await
    anymetal_await(batches);
#endif
  }
  // What was asked from there.
  static uint4 take(uint slot, device const void* from) {
#ifdef anymetal_take
    uint words[4];
    anymetal_take(words, slots, threads, slot, from);
    return uint4(words[0], words[1], words[2], words[3]);
#else
    return *reinterpret_cast<device const uint4*>(from);
#endif
  }
};
