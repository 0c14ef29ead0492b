// The machine a kernel runs on: one thread, its simdgroup, its threadgroup.
//
// Two parties include this file. The metal_* headers call the primitives; the CPU engine's runtime
// (engines/cpu/runtime.cpp) fills the structures of layout.h and provides what the passes put in
// the primitives' place.
#pragma once
#include <anymetal/layout.h>

#define AM_INLINE inline __attribute__((always_inline))

extern "C" {
// This thread. A pass puts the kernel's own parameter in place of each call.
__attribute__((const)) am_thread* am_self();
// Stop here until the runtime resumes the thread; `what` is an am_wait with, for barriers, the
// memory flags in bits 4 to 11 and the scope in bits 12 to 15. Never call it directly: use
// am_wait_at.
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

template <class T, unsigned Slot>
AM_INLINE T& am_threadgroup_variable() {
  return *static_cast<T*>(am_threadgroup_storage(Slot, sizeof(T), alignof(T)));
}

// Where the lanes leave values of type T: an array of one T a lane. Types of 1, 2, 4, ... 64 bytes
// have an array each, so that lanes which wait at different collectives of a divergent simdgroup do
// not write over one another.
template <class T>
AM_INLINE T* am_lanes_in(am_simdgroup* simd) {
  static_assert(sizeof(T) <= AM_SLOT_BYTES && (sizeof(T) & (sizeof(T) - 1)) == 0);
  return reinterpret_cast<T*>(simd->inputs + AM_SIMD_WIDTH * sizeof(T));
}

// One collective operation of a simdgroup. Every lane leaves its value; the leader, resumed first,
// calls `compute(active, in, out)` once over the typed arrays of 32 values; every active lane takes
// its result. Values of inactive lanes in `in` are stale: `compute` must look at the mask. With
// `Shared` the result is the same for every lane, and taken from where lane 0 would find it: then
// an engine that runs all lanes at once knows that it is one value.
template <class Out, bool Shared = false, class In, class Compute>
AM_INLINE Out am_collective(In value, Compute compute) {
  static_assert(sizeof(Out) <= AM_SLOT_BYTES);
  am_thread* self = am_self();
  am_lanes_in<In>(self->simd)[self->lane] = value;
  am_wait_at(AM_COLLECTIVE);
  am_simdgroup* simd = self->simd;
  if (simd->leader == self->lane)
    compute(simd->active, static_cast<const In*>(am_lanes_in<In>(simd)),
            reinterpret_cast<Out*>(simd->outputs));
  Out result = reinterpret_cast<const Out*>(simd->outputs)[Shared ? 0 : self->lane];
  am_taken();
  return result;
}
