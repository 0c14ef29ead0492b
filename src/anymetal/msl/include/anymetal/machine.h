// The machine a kernel runs on: one thread, its simdgroup, its threadgroup.
//
// Two parties include this file. The metal_* headers call the four primitives at the end; the CPU
// engine's runtime (engines/cpu/runtime.cpp) fills the structures and provides what the passes
// put in the primitives' place. No other code may depend on the layout.
#pragma once

#define AM_INLINE inline __attribute__((always_inline))
#define AM_SIMD_WIDTH 32
#define AM_SLOT_BYTES 64  // the widest value one lane brings to a collective

// What a thread waits for when it suspends. Kept in the low four bits of `am_thread::site`.
enum am_wait : unsigned {
  AM_FINISHED = 0,
  AM_THREADGROUP_BARRIER = 1,  // all live threads of the threadgroup
  AM_SIMDGROUP_BARRIER = 2,    // the live lanes standing at this site
  AM_COLLECTIVE = 3,           // the live lanes standing at this site
  AM_LOOP_END = 4,             // likewise; put in by passes/coroutine.py
};

struct am_group {
  unsigned position[3];        // threadgroup_position_in_grid
  unsigned size[3];            // threads_per_threadgroup: smaller at the edges of the grid
  unsigned nominal_size[3];    // dispatch_threads_per_threadgroup
  unsigned groups[3];          // threadgroups_per_grid
  unsigned grid[3];            // threads_per_grid
  unsigned threads;            // size[0] * size[1] * size[2]
  unsigned simdgroups;         // threads / 32, rounded up
  unsigned nominal_simdgroups; // dispatch_simdgroups_per_threadgroup
  char* threadgroup_memory;    // the arrays declared in the kernel's body
  char* dynamic_memory[31];    // [[threadgroup(n)]] parameters
  void* log;                   // the runtime's: where os_log messages go
  void* listener_data;         // the runtime's: what instrumented code reports to
};

struct am_simdgroup {
  unsigned active;    // bit per lane: the lanes taking part in the collective just completed
  unsigned leader;    // lowest active lane: it is resumed first and computes for all
  unsigned index;     // simdgroup_index_in_threadgroup
  unsigned threads;   // live at the start: 32, or fewer in the last simdgroup
  alignas(64) char in[2 * AM_SIMD_WIDTH * AM_SLOT_BYTES];  // one value a lane: see am_lanes_in
  alignas(64) char out[AM_SIMD_WIDTH * AM_SLOT_BYTES];  // likewise, written by the leader
};

struct am_thread {
  unsigned site;         // where it stands: site number << 4 | am_wait; written before each suspend
  unsigned lane;         // thread_index_in_simdgroup
  unsigned position[3];  // thread_position_in_threadgroup
  unsigned index;        // thread_index_in_threadgroup
  am_simdgroup* simd;    // null in kernels without barriers and collectives
  am_group* group;
};

// The passes read these members from IR.
static_assert(__builtin_offsetof(am_thread, group) == 32);
static_assert(__builtin_offsetof(am_thread, index) == 20);
static_assert(__builtin_offsetof(am_group, threadgroup_memory) == 72);
static_assert(__builtin_offsetof(am_group, listener_data) == 336);

extern "C" {
// This thread. A pass puts the kernel's own parameter in place of each call.
__attribute__((const)) am_thread* am_self();
// Stop here until the runtime resumes the thread; `what` is an am_wait with, for barriers, the memory
// flags in bits 4 to 11 and the scope in bits 12 to 15. Never call it directly: use am_wait_at.
__attribute__((convergent, nomerge, noduplicate)) char am_suspend(unsigned what);
[[noreturn]] __attribute__((nomerge)) void am_leave();
// This lane has taken its result of a collective. Where all lanes run at once, both sides of a branch use
// the same places, one after the other: a read must not be moved past the end of its side.
__attribute__((convergent, nomerge)) void am_taken();
// Storage of the threadgroup variable number `slot`; a pass lays all of them out.
__attribute__((const)) void* am_threadgroup_storage(unsigned slot, unsigned long size, unsigned long align);
}

AM_INLINE void am_wait_at(unsigned what) {
  if (am_suspend(what)) am_leave();
}

template <class T, unsigned Slot>
AM_INLINE T& am_threadgroup_variable() {
  return *static_cast<T*>(am_threadgroup_storage(Slot, sizeof(T), alignof(T)));
}

// Where the lanes leave values of type T: an array of one T a lane. Types of 1, 2, 4, ... 64 bytes have an
// array each, so that lanes which wait at different collectives of a divergent simdgroup do not write
// over one another.
template <class T>
AM_INLINE T* am_lanes_in(am_simdgroup* simd) {
  static_assert(sizeof(T) <= AM_SLOT_BYTES && (sizeof(T) & (sizeof(T) - 1)) == 0);
  return reinterpret_cast<T*>(simd->in + AM_SIMD_WIDTH * sizeof(T));
}

// One collective operation of a simdgroup. Every lane leaves its value; the leader, resumed first, calls
// `compute(active, in, out)` once over the typed arrays of 32 values; every active lane takes its result.
// Values of inactive lanes in `in` are stale: `compute` must look at the mask.
// With `Shared` the result is the same for every lane, and taken from where lane 0 would find it: then
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
            reinterpret_cast<Out*>(simd->out));
  Out result = reinterpret_cast<const Out*>(simd->out)[Shared ? 0 : self->lane];
  am_taken();
  return result;
}
