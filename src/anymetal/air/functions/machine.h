// Barriers, the built-in values of a thread, and the loop over the threads of a threadgroup.
#include "air.h"

extern "C" void am_thread_main(void* const* buffers, am_thread* self);
#include <anymetal/group.h>

AIR(void, air_wg_barrier, "air.wg.barrier", uint flags, uint scope) {
  am_wait_at(AM_THREADGROUP_BARRIER | metal::am_barrier_word(flags, scope));
}
AIR(void, air_simdgroup_barrier, "air.simdgroup.barrier", uint flags, uint scope) {
  am_wait_at(AM_SIMDGROUP_BARRIER | metal::am_barrier_word(flags, scope));
}
AIR(void, air_atomic_fence, "air.atomic.fence", uint flags, uint order, uint scope) {
  metal::atomic_thread_fence(metal::mem_flags(flags), metal::memory_order(order),
                             metal::thread_scope(scope));
}

AIR(ushort, air_simdgroup_size_16, "air.get_simdgroup_size.i16") { return AM_SIMD_WIDTH; }
AIR(uint, air_simdgroup_size_32, "air.get_simdgroup_size.i32") { return AM_SIMD_WIDTH; }
AIR(ushort, air_lane_16, "air.get_thread_index_in_simdgroup.i16") { return am_lane(); }
AIR(uint, air_lane_32, "air.get_thread_index_in_simdgroup.i32") { return am_lane(); }

// A promise to the compiler, which has been kept or not: nothing to compute.
#define AIR_UNIFORM(KIND, T) \
  AIR(bool, air_uniform_##T, "air.is_uniform." KIND, T) { return true; }
AIR_UNIFORM("i1", bool)
AIR_UNIFORM("i8", uchar)
AIR_UNIFORM("i16", ushort)
AIR_UNIFORM("i32", uint)
AIR_UNIFORM("i64", ulong)
AIR_UNIFORM("f16", half)
AIR_UNIFORM("f32", float)

AIR(uchar, air_predicate, "air.normalize_function_constant_predicate.i8", uchar value) {
  return value != 0;
}

// Memory that the host sees at once: every access of ours is.
#define AIR_COHERENT(KIND, T)                                                                   \
  AIR(T, air_coherent_load_##T, "air.load.system_coherent.volatile." KIND, volatile T* place) { \
    T value;                                                                                    \
    __atomic_load(place, &value, __ATOMIC_RELAXED);                                             \
    return value;                                                                               \
  }                                                                                             \
  AIR(void, air_coherent_store_##T, "air.store.system_coherent.volatile." KIND, T value,        \
      volatile T* place) {                                                                      \
    __atomic_store(place, &value, __ATOMIC_RELAXED);                                            \
  }
AIR_COHERENT("i32.p1i32", uint)
AIR_COHERENT("f32.p1f32", float)

// ---- What am_thread_main hands to a kernel's parameters
// -------------------------------------------

AIR(char*, air_dynamic_memory, "am.air.dynamic_memory", am_thread* self, uint index) {
  return self->group->dynamic_memory[index];
}
#define AIR_BUILTIN(NAME)                                                                        \
  AIR(uint, air_##NAME##_0, "am.air." #NAME ".0", am_thread* self) { return am_##NAME(self).x; } \
  AIR(uint, air_##NAME##_1, "am.air." #NAME ".1", am_thread* self) { return am_##NAME(self).y; } \
  AIR(uint, air_##NAME##_2, "am.air." #NAME ".2", am_thread* self) { return am_##NAME(self).z; }
AIR_BUILTIN(thread_position_in_grid)
AIR_BUILTIN(thread_position_in_threadgroup)
AIR_BUILTIN(threadgroup_position_in_grid)
AIR_BUILTIN(threads_per_threadgroup)
AIR_BUILTIN(dispatch_threads_per_threadgroup)
AIR_BUILTIN(threads_per_grid)
AIR_BUILTIN(threadgroups_per_grid)
AIR_BUILTIN(grid_origin)
AIR_BUILTIN(grid_size)
AIR_BUILTIN(thread_index_in_threadgroup)
AIR_BUILTIN(thread_index_in_simdgroup)
AIR_BUILTIN(thread_index_in_quadgroup)
AIR_BUILTIN(simdgroup_index_in_threadgroup)
AIR_BUILTIN(quadgroup_index_in_threadgroup)
AIR_BUILTIN(simdgroups_per_threadgroup)
AIR_BUILTIN(quadgroups_per_threadgroup)
AIR_BUILTIN(dispatch_simdgroups_per_threadgroup)
AIR_BUILTIN(dispatch_quadgroups_per_threadgroup)
AIR_BUILTIN(threads_per_simdgroup)
AIR_BUILTIN(thread_execution_width)
