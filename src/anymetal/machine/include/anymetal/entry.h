// From a thread of this machine to the built-in values that a kernel asks for.
//
// The thunk (target.py of an engine) calls a function for each built-in parameter, by its name.
#pragma once
#include <anymetal/parameters.h>

AM_INLINE am_triple am_triple_of(const unsigned (&values)[3]) {
  return {values[0], values[1], values[2]};
}
AM_INLINE am_triple am_scalar(unsigned value) { return {value, 0, 0}; }

AM_INLINE am_triple am_thread_position_in_grid(const am_thread* self) {
  const am_group* group = self->group;
  return {group->position[0] * group->nominal_size[0] + self->position[0],
          group->position[1] * group->nominal_size[1] + self->position[1],
          group->position[2] * group->nominal_size[2] + self->position[2]};
}
AM_INLINE am_triple am_thread_position_in_threadgroup(const am_thread* self) {
  return am_triple_of(self->position);
}
AM_INLINE am_triple am_threadgroup_position_in_grid(const am_thread* self) {
  return am_triple_of(self->group->position);
}
AM_INLINE am_triple am_threads_per_threadgroup(const am_thread* self) {
  return am_triple_of(self->group->size);
}
AM_INLINE am_triple am_dispatch_threads_per_threadgroup(const am_thread* self) {
  return am_triple_of(self->group->nominal_size);
}
AM_INLINE am_triple am_threads_per_grid(const am_thread* self) {
  return am_triple_of(self->group->grid);
}
AM_INLINE am_triple am_threadgroups_per_grid(const am_thread* self) {
  return am_triple_of(self->group->groups);
}
// The region that a stage-in descriptor covers; without one it is the grid.
AM_INLINE am_triple am_grid_origin(const am_thread*) { return {0, 0, 0}; }
AM_INLINE am_triple am_grid_size(const am_thread* self) { return am_threads_per_grid(self); }

AM_INLINE am_triple am_thread_index_in_threadgroup(const am_thread* self) {
  return am_scalar(self->index);
}
AM_INLINE am_triple am_thread_index_in_simdgroup(const am_thread* self) {
  return am_scalar(self->lane);
}
AM_INLINE am_triple am_thread_index_in_quadgroup(const am_thread* self) {
  return am_scalar(self->lane % 4);
}
AM_INLINE am_triple am_simdgroup_index_in_threadgroup(const am_thread* self) {
  return am_scalar(self->index / AM_SIMD_WIDTH);
}
AM_INLINE am_triple am_quadgroup_index_in_threadgroup(const am_thread* self) {
  return am_scalar(self->index / 4);
}
AM_INLINE am_triple am_simdgroups_per_threadgroup(const am_thread* self) {
  return am_scalar(self->group->simdgroups);
}
AM_INLINE am_triple am_quadgroups_per_threadgroup(const am_thread* self) {
  return am_scalar((self->group->threads + 3) / 4);
}
AM_INLINE am_triple am_dispatch_simdgroups_per_threadgroup(const am_thread* self) {
  return am_scalar(self->group->nominal_simdgroups);
}
AM_INLINE am_triple am_dispatch_quadgroups_per_threadgroup(const am_thread* self) {
  const unsigned (&size)[3] = self->group->nominal_size;
  return am_scalar((size[0] * size[1] * size[2] + 3) / 4);
}
AM_INLINE am_triple am_threads_per_simdgroup(const am_thread*) { return am_scalar(AM_SIMD_WIDTH); }
AM_INLINE am_triple am_thread_execution_width(const am_thread*) { return am_scalar(AM_SIMD_WIDTH); }
