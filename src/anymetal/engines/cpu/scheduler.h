// The threads of one threadgroup as coroutines, and the order in which they run.
//
// Lanes of a simdgroup run until each stands somewhere. Those at the lowest collective site go on
// together: lanes that took the other branch, or left a loop early, wait at a higher site until
// these catch up. A simdgroup all of whose live lanes stand at a threadgroup barrier waits for the
// others. A vectorised kernel (passes/simdgroup) runs a whole simdgroup at a time: then `threads`
// holds the first thread of each, and a simdgroup only ever waits at a threadgroup barrier. The
// Listener (run_listener.h) is told of every meeting and every barrier before the threads go on.
#pragma once

#include <anymetal/machine.h>
#include <run_listener.h>

#include "fenced.h"
#include "system.h"

using Coroutine = void* (*)(void* const* buffers, am_thread* self, void* frame,
                            unsigned long* size);
using Resume = void (*)(void* handle);
using GroupLoop = void (*)(void* const* buffers, am_group* group);
using SimdgroupKernel = void (*)(void* const* buffers, am_thread* first);
// Takes all simdgroups of a threadgroup to where each of them waits next, and goes on from there
// when it is called again (simdgroup/turns.py); returns whether any of them waits.
using WaitingKernel = unsigned (*)(void* const* buffers, am_thread* first, void* frames);

constexpr unsigned kNoSite = ~0u;
constexpr unsigned long kFrameAlignment =
    256;  // of the first frame; vectors of 32 values live in it

struct GroupState {
  Listener listener;
  am_group group;
  FencedMemory memory;  // threadgroup memory, static and dynamic
  FencedMemory frames;
  am_thread* threads;   // AM_MAX_THREADS
  am_simdgroup* simds;  // AM_MAX_THREADS / 32

  bool reserve(unsigned long thread_count, unsigned long frame_size, unsigned long memory_size) {
    if (!threads && !allocate((void**)&threads, AM_MAX_THREADS * sizeof(am_thread))) return false;
    if (!simds && !allocate((void**)&simds, AM_MAX_THREADS / AM_SIMD_WIDTH * sizeof(am_simdgroup)))
      return false;
    if (!memory.reserve(memory_size, kFrameAlignment)) return false;
    // Not zero: what nobody wrote should not look like a good value. As floats these are NaN.
    memset(memory.start, 0xff, memory_size);
    return frames.reserve(thread_count * frame_size, kFrameAlignment);
  }

  void run_simdgroups(SimdgroupKernel kernel, void* const* buffers) {
    for (unsigned s = 0; s < group.simdgroups; ++s) {
      place_simdgroup(s);
      kernel(buffers, &threads[s]);
    }
  }

  void run_waiting_simdgroups(WaitingKernel kernel, void* const* buffers) {
    for (unsigned s = 0; s < group.simdgroups; ++s) {
      place_simdgroup(s);
      threads[s].site = AM_THREADGROUP_BARRIER;  // number 0: its start
    }
    while (kernel(buffers, threads, frames.start)) {
    }
  }

  void release() {
    memory.release();
    frames.release();
    free(threads);
    free(simds);
    *this = {};
  }

  void run_coroutines(Coroutine kernel, void* const* buffers, unsigned long frame_size) {
    place_threads();
    for (unsigned s = 0; s < group.simdgroups; ++s) {
      start(kernel, buffers, frame_size, s);
      settle(s);
    }
    while (anyone_waits()) {
      listener.barrier_reached(group, threads);
      for (unsigned s = 0; s < group.simdgroups; ++s) {
        pass_barrier(s);
        settle(s);
      }
    }
  }

 private:
  static bool allocate(void** place, unsigned long size) {
    return posix_memalign(place, kFrameAlignment, size) == 0;
  }

  void place_threads() {
    unsigned index = 0;
    for (unsigned z = 0; z < group.size[2]; ++z)
      for (unsigned y = 0; y < group.size[1]; ++y)
        for (unsigned x = 0; x < group.size[0]; ++x, ++index) {
          am_thread& self = threads[index];
          self.site = AM_FINISHED;
          self.lane = index % AM_SIMD_WIDTH;
          self.position[0] = x;
          self.position[1] = y;
          self.position[2] = z;
          self.index = index;
          self.simd = &simds[index / AM_SIMD_WIDTH];
          self.group = &group;
        }
  }

  void place_simdgroup(unsigned s) {
    am_thread& first = threads[s];
    unsigned index = s * AM_SIMD_WIDTH;
    first.site = AM_FINISHED;
    first.lane = 0;
    first.position[0] = index % group.size[0];
    first.position[1] = index / group.size[0] % group.size[1];
    first.position[2] = index / group.size[0] / group.size[1];
    first.index = index;
    first.simd = &simds[s];
    first.group = &group;
    simds[s].index = s;
    simds[s].threads = lanes_of(s);
  }

  unsigned lanes_of(unsigned s) const {
    unsigned rest = group.threads - s * AM_SIMD_WIDTH;
    return rest < AM_SIMD_WIDTH ? rest : AM_SIMD_WIDTH;
  }

  void* handle_of(unsigned index) const { return frames.start + index * stride_; }

  void start(Coroutine kernel, void* const* buffers, unsigned long frame_size, unsigned s) {
    stride_ = frame_size;
    unsigned first = s * AM_SIMD_WIDTH, lanes = lanes_of(s);
    simds[s].index = s;
    simds[s].threads = lanes;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      kernel(buffers, &threads[first + lane], handle_of(first + lane), nullptr);
      resume(first + lane);
    }
  }

  void resume(unsigned index) const {
    void* handle = handle_of(index);
    (*(Resume*)handle)(handle);
  }

  // Lets a simdgroup run until every live lane stands at a threadgroup barrier.
  void settle(unsigned s) {
    am_simdgroup& simd = simds[s];
    am_thread* lane_threads = threads + s * AM_SIMD_WIDTH;
    unsigned lanes = simd.threads;
    for (;;) {
      unsigned site = lowest_meeting(lane_threads, lanes);
      if (site == kNoSite) return;
      unsigned active = 0;
      for (unsigned lane = 0; lane < lanes; ++lane)
        active |= (unsigned)(lane_threads[lane].site == site) << lane;
      simd.active = active;
      simd.leader = __builtin_ctz(active);
      listener.lanes_met(simd, lane_threads, site, active);
      if (active == ~0u) {
        for (unsigned lane = 0; lane < AM_SIMD_WIDTH; ++lane) resume(s * AM_SIMD_WIDTH + lane);
      } else {
        for (; active; active &= active - 1) resume(s * AM_SIMD_WIDTH + __builtin_ctz(active));
      }
    }
  }

  static unsigned lowest_meeting(const am_thread* lane_threads, unsigned lanes) {
    unsigned lowest = kNoSite;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      unsigned site = lane_threads[lane].site;
      bool meets = (site & AM_WAIT_MASK) >= AM_SIMDGROUP_BARRIER;
      lowest = meets && site < lowest ? site : lowest;
    }
    return lowest;
  }

  bool anyone_waits() const {
    for (unsigned index = 0; index < group.threads; ++index)
      if (threads[index].site != AM_FINISHED) return true;
    return false;
  }

  void pass_barrier(unsigned s) {
    unsigned first = s * AM_SIMD_WIDTH;
    for (unsigned lane = 0; lane < simds[s].threads; ++lane)
      if (threads[first + lane].site != AM_FINISHED) resume(first + lane);
  }

  unsigned long stride_;
};
