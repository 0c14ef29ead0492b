// Memory that is fetched ahead of its use, and such as is read or written once, where a device can
// be told.
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

// Where what nobody reads soon goes to.
inline void write_once(device uint4* to, uint4 words) {
#ifdef anymetal_write_once
  anymetal_write_once(to, words.x, words.y, words.z, words.w);
#else
  *to = words;
#endif
}
