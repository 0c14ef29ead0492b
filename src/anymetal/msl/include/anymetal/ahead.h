// Hints about memory: an extension of Metal, which other compilers lack.
//
//   #if __has_include(<anymetal/ahead.h>)
//   #include <anymetal/ahead.h>
//   #endif
//
// anymetal_fetch_ahead(from): what lies around this place, up to the cache's line, will be read
// soon. anymetal_read_once(words, from): 16 bytes at a multiple of 16, which nobody writes during
// the launch and nobody reads again, go to an array of four uint. anymetal_write_once(to, a, b, c,
// d): four uint go to 16 bytes at a multiple of 16, which nobody reads soon.
// anymetal_forget(a, b, c, d): what was computed from these four uint is not kept, if that takes
// registers, but computed again. Nothing but time depends on these; CPUs take no notice.
//
// A thread can ask for more than it has registers for, long before it needs it. It has `slots`
// places of 16 bytes of its own; `threads` is the most that a threadgroup has, and both are the
// same constants wherever a kernel names them. anymetal_ask(slots, threads, slot, from): 16 bytes
// at a multiple of 16, which nobody writes during the launch, are on their way to a slot.
// anymetal_asked(): what was asked for since the last time is a batch. anymetal_await(batches):
// until no more than so many of a thread's batches are on their way: best a constant, once loops
// are unrolled, and counted up to 15.
// anymetal_take(words, slots, threads, slot, from): what was asked for goes to an array of four
// uint, as often as one likes before the slot is asked to hold something else. `from` is where it
// was asked from: a device without such memory reads it there, and then only.
//
// anymetal_vectors_are_aligned; at program scope: no kernel of this source accesses a vector that
// is not aligned for its type. Where the hardware cannot take such vectors, accesses are then no
// longer looked at.
#pragma once
#define anymetal_vectors_are_aligned \
  struct am_vectors_are_aligned {}
#define anymetal_fetch_ahead(from) am_fetch_ahead(from)
#define anymetal_read_once(words, from) am_read_once(words, from)
#define anymetal_forget(a, b, c, d) am_forget(a, b, c, d)
#define anymetal_write_once(to, a, b, c, d) am_write_once(to, a, b, c, d)
#define anymetal_ask(slots, threads, slot, from) am_ask<slots, threads>(slot, from)
#define anymetal_asked() am_asked()
#define anymetal_await(batches) am_await(batches)
#define anymetal_take(words, slots, threads, slot, from) am_take<slots, threads>(words, slot, from)
