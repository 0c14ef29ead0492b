// The machine a kernel runs on: one thread, its simdgroup, its threadgroup.
//
// Each target has headers of these names of its own; the metal_* headers know their functions
// and none of their structures. Two parties include this file. The metal_* headers call the
// primitives; the CPU engine's runtime (engines/cpu/runtime.cpp) fills the structures of layout.h
// and provides what the passes put in the primitives' place.
#pragma once
#include <anymetal/inline.h>
#include <anymetal/layout.h>

extern "C" {
// This thread. A pass puts the kernel's own parameter in place of each call.
__attribute__((const)) am_thread* am_self();
// Stop here until the runtime resumes the thread; `what` is an am_wait with, for barriers, the
// memory flags from bit AM_WAIT_BITS on and the scope from bit AM_SCOPE_SHIFT on. Never call it
// directly: use am_wait_at.
__attribute__((convergent, nomerge, noduplicate)) char am_suspend(unsigned what);
[[noreturn]] __attribute__((nomerge)) void am_leave();
// This lane has taken its result of a collective. Where all lanes run at once, both sides of a
// branch use the same places, one after the other: a read must not be moved past the end of its
// side.
__attribute__((convergent, nomerge)) void am_taken();
// Storage of the threadgroup variable number `slot`; a pass lays all of them out.
__attribute__((const)) void* am_threadgroup_storage(unsigned slot, unsigned long size,
                                                    unsigned long align);
}

AM_INLINE void am_wait_at(unsigned what) {
  if (am_suspend(what)) am_leave();
}

template <class T, unsigned Slot, unsigned long Align = alignof(T)>
AM_INLINE T& am_threadgroup_variable() {
  return *static_cast<T*>(am_threadgroup_storage(Slot, sizeof(T), Align));
}

// `value` is what a threadgroup variable begins with; am_place_initial_values stores all of them,
// before the kernel starts (msl/initial_values.py).
extern "C" void am_initial_value(const volatile void* value);
extern "C" void am_place_initial_values();
template <class T, class U>
AM_INLINE void am_store_initial(T&, const U& value) {
  am_initial_value(&value);
}

AM_INLINE unsigned am_lane() { return am_self()->lane; }

AM_INLINE unsigned am_simdgroup_index() { return am_self()->index / AM_SIMD_WIDTH; }

AM_INLINE bool am_is_first_thread() { return am_self()->index == 0; }

// Hints that a CPU has no use for: it fetches what follows in memory by itself.
AM_INLINE void am_fetch_ahead(const void*) {}
AM_INLINE void am_read_once(unsigned (&words)[4], const void* from) {
  __builtin_memcpy(words, from, sizeof(words));
}
AM_INLINE void am_forget(unsigned&, unsigned&, unsigned&, unsigned&) {}
AM_INLINE void am_write_once(void* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned words[] = {a, b, c, d};
  __builtin_memcpy(to, words, sizeof(words));
}
template <unsigned Slots, unsigned Threads>
AM_INLINE void am_ask(unsigned, const void*) {}
AM_INLINE void am_asked() {}
AM_INLINE void am_await(unsigned) {}
template <unsigned Slots, unsigned Threads>
AM_INLINE void am_take(unsigned (&words)[4], unsigned, const void* from) {
  am_read_once(words, from);
}
