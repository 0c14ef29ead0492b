// The machine a kernel runs on, where it is an NVIDIA GPU: a thread is a thread of a block, a
// simdgroup a warp, a threadgroup a block of one dimension.
//
// Lanes have two numbers. The logical one is Metal's; the physical one is the hardware's. They are
// the same but in kernels with products of half or bfloat matrices (am_lanes_as_tiles): there bits
// (4 3 2 1 0) of the logical lane are bits (4 2 1 3 0) of the physical one, because an 8x8 matrix
// spread as Metal spreads it then lies as the tensor cores want it.
#pragma once
#include <anymetal/inline.h>
#include <anymetal/layout.h>

// Whether the two numbers differ. The engine answers, once all is inlined.
extern "C" __attribute__((const)) bool am_lanes_as_tiles();

AM_INLINE unsigned am_physical(unsigned lane) {
  return am_lanes_as_tiles() ? (lane & 17) | (lane & 8) >> 2 | (lane & 6) << 1 : lane;
}
AM_INLINE unsigned am_logical(unsigned lane) {
  return am_lanes_as_tiles() ? (lane & 17) | (lane & 2) << 2 | (lane & 12) >> 1 : lane;
}
AM_INLINE unsigned am_logical_mask(unsigned physical) {
  if (!am_lanes_as_tiles() || physical == ~0u) return physical;
  unsigned mask = 0;
  for (unsigned lane = 0; lane < AM_SIMD_WIDTH; ++lane)
    mask |= (physical >> lane & 1) << am_logical(lane);
  return mask;
}

AM_INLINE unsigned am_lane() { return am_logical(__nvvm_read_ptx_sreg_tid_x() % AM_SIMD_WIDTH); }
AM_INLINE unsigned am_simdgroup_index() { return __nvvm_read_ptx_sreg_tid_x() / AM_SIMD_WIDTH; }
AM_INLINE bool am_is_first_thread() { return __nvvm_read_ptx_sreg_tid_x() == 0; }

// A barrier that puts no memory in order: mem_none. The engine settles it
// (engines/cuda/barriers.py).
extern "C" __attribute__((convergent)) void am_only_wait();

// `what` is an am_wait. Threads that have ended do not count at a barrier.
AM_INLINE void am_wait_at(unsigned what) {
  constexpr unsigned flags = (1u << AM_SCOPE_SHIFT) - (1u << AM_WAIT_BITS);
  if ((what & AM_WAIT_MASK) != AM_THREADGROUP_BARRIER)
    __nvvm_bar_warp_sync(__nvvm_activemask());
  else if ((what & flags) == 0)
    am_only_wait();
  else
    __nvvm_barrier_sync(0);
}

// A threadgroup variable: one for each slot, in shared memory.
template <unsigned Slot, unsigned long Size, unsigned long Align>
struct am_shared {
  [[clang::loader_uninitialized]] static inline
      __attribute__((address_space(3), aligned(Align))) char bytes[Size];
};
template <class T, unsigned Slot, unsigned long Align = alignof(T)>
AM_INLINE T& am_threadgroup_variable() {
  return *(T*)(am_shared<Slot, sizeof(T), Align>::bytes);
}

// Shared memory whose size the launch says: what threads ask for, then [[threadgroup(n)]]
// parameters.
extern "C" __attribute__((address_space(3), aligned(16))) char am_dynamic_memory[];

// `value` is what a threadgroup variable begins with; am_place_initial_values stores all of them,
// before the kernel starts (msl/initial_values.py).
extern "C" void am_initial_value(const volatile void* value);
extern "C" void am_place_initial_values();
template <class T, class U>
AM_INLINE void am_store_initial(T&, const U& value) {
  am_initial_value(&value);
}

// The line at `from` is fetched into the L2 cache.
AM_INLINE void am_fetch_ahead(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// 16 bytes that leave no line in the L1 cache; what follows them comes into the L2 cache as well.
AM_INLINE void am_read_once(unsigned (&words)[4], const void* from) {
  asm("ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%0, %1, %2, %3}, [%4];"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "l"(from));
}

// What was computed from these words is computed again.
AM_INLINE void am_forget(unsigned& a, unsigned& b, unsigned& c, unsigned& d) {
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
}

// 16 bytes that leave the L2 cache before others.
AM_INLINE void am_write_once(void* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile(
      "{ .reg .b64 once;"
      " createpolicy.fractional.L2::evict_first.b64 once, 1.0;"
      " st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, once; }" ::"l"(to),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

// Where what threads ask for begins. The engine answers, and sees to it that a launch has so many
// bytes for it.
extern "C" __attribute__((const)) unsigned am_place_of_asked(unsigned bytes);

// A slot of this thread: those of the threads of a warp lie side by side.
template <unsigned Slots, unsigned Threads>
AM_INLINE unsigned am_slot(unsigned slot) {
  constexpr unsigned bytes = 16;
  return (unsigned)(unsigned long)am_dynamic_memory + am_place_of_asked(Slots * Threads * bytes) +
         (slot * Threads + __nvvm_read_ptx_sreg_tid_x()) * bytes;
}

// 16 bytes go to a slot by themselves; the line around them comes into the L2 cache as well.
template <unsigned Slots, unsigned Threads>
AM_INLINE void am_ask(unsigned slot, const void* from) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(am_slot<Slots, Threads>(slot)),
      "l"((const __attribute__((address_space(1))) void*)from)
      : "memory");
}

AM_INLINE void am_asked() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <unsigned Batches>
AM_INLINE void am_await_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Batches) : "memory");
}

// The instruction takes a constant, which `batches` becomes once loops are unrolled.
AM_INLINE void am_await(unsigned batches) {
  switch (batches) {
    case 0:
      return am_await_group<0>();
    case 1:
      return am_await_group<1>();
    case 2:
      return am_await_group<2>();
    case 3:
      return am_await_group<3>();
    case 4:
      return am_await_group<4>();
    case 5:
      return am_await_group<5>();
    case 6:
      return am_await_group<6>();
    case 7:
      return am_await_group<7>();
    case 8:
      return am_await_group<8>();
    case 9:
      return am_await_group<9>();
    case 10:
      return am_await_group<10>();
    case 11:
      return am_await_group<11>();
    case 12:
      return am_await_group<12>();
    case 13:
      return am_await_group<13>();
    case 14:
      return am_await_group<14>();
    default:
      return am_await_group<15>();
  }
}

template <unsigned Slots, unsigned Threads>
AM_INLINE void am_take(unsigned (&words)[4], unsigned slot, const void*) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(am_slot<Slots, Threads>(slot)));
}
