// The rules of a shadow cell: which records an access cannot race with, and what a read records.
#pragma once

#include "publish.h"
#include "state.h"

// Lets the inline checks settle accesses to a region, unless it is watched.
inline void open_fast_path(am_region& region) {
  bool watched = region.watched != AM_UNWATCHED;
  bool in_step = region.shadow && ((unsigned long)region.low & ((1ul << region.shift) - 1)) == 0;
  for (unsigned shift = 0; 1u << shift <= kLargestCell; ++shift)
    region.cells[shift] = in_step && !watched && shift == region.shift ? region.extent >> shift : 0;
  region.limit = watched ? 0 : region.extent;
}

// Whether an access by `thread` cannot race with `record`: it is of an earlier launch, ordered by a
// threadgroup barrier, or the thread's own. (Simdgroup barriers order accesses too; the slow path
// looks at them.)
AM_INLINE bool settled(const am_checks& checks, unsigned memory, unsigned long record,
                       unsigned thread) {
  unsigned epoch = am_epoch_of(record);
  if (epoch < checks.first[memory]) return true;
  return am_in_group(checks, epoch) &&
         (epoch < checks.ordered[memory] || am_thread_of(record) == thread);
}

AM_INLINE bool may_read(const am_checks& checks, const am_region& region, const am_cell& cell,
                        unsigned thread) {
  if (region.fresh && am_epoch_of(cell.write) < checks.first[region.memory]) return false;
  return settled(checks, region.memory, cell.write, thread) && !(cell.read & kAtomic);
}

AM_INLINE bool may_write(const am_checks& checks, const am_region& region, const am_cell& cell,
                         unsigned thread) {
  unsigned memory = region.memory, epoch = am_epoch_of(cell.read);
  if (!settled(checks, memory, cell.write, thread)) return false;
  if (!settled(checks, memory, cell.read, thread)) return false;
  unsigned readers = am_readers_of(cell.read);
  return epoch < checks.first[memory] || readers == AM_ONE_THREAD ||
         (epoch < checks.ordered[memory] && readers != AM_OTHER_THREADGROUP);
}

// The readers of a cell after a read by `thread`.
AM_INLINE unsigned readers_with(unsigned long before, unsigned thread) {
  unsigned readers = am_readers_of(before), other = am_thread_of(before);
  if (other == thread) return readers;
  unsigned seen =
      other / AM_SIMD_WIDTH == thread / AM_SIMD_WIDTH ? AM_ONE_SIMDGROUP : AM_SEVERAL_SIMDGROUPS;
  return readers > seen ? readers : seen;
}

// Whether a simdgroup barrier lies between a record and what `thread` does now.
AM_INLINE bool behind_simdgroup_barrier(const am_checks& checks, unsigned memory,
                                        unsigned long record, unsigned thread) {
  const am_checked_launch& launch = (const am_checked_launch&)checks;
  unsigned simd = thread / AM_SIMD_WIDTH;
  return am_thread_of(record) / AM_SIMD_WIDTH == simd &&
         am_epoch_of(record) < launch.simd_ordered[memory][simd];
}

// The threadgroup that ran in an epoch, where one worker runs them all.
inline unsigned long group_of(const am_checked_launch& launch, unsigned epoch) {
  unsigned long low = 0, high = launch.group;
  while (low < high) {
    unsigned long middle = (low + high + 1) / 2;
    if (launch.group_starts[middle] <= epoch)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// Whether fences and an atomic put what a record tells of before what `thread` does now.
inline bool is_published(const am_checks& checks, unsigned memory, unsigned long record,
                         unsigned thread) {
  const am_checked_launch& launch = (const am_checked_launch&)checks;
  if (!launch.has_fences) return false;
  unsigned epoch = am_epoch_of(record);
  return publications.knows(launch.group, thread, group_of(launch, epoch), am_thread_of(record),
                            epoch, memory);
}

// The record of a read, merged with that of earlier reads.
AM_INLINE unsigned long joined(const am_checks& checks, unsigned memory, unsigned long before,
                               unsigned thread, unsigned site, unsigned atomic) {
  unsigned epoch = am_epoch_of(before), readers = am_readers_of(before);
  if (epoch < checks.first[memory] || is_published(checks, memory, before, thread))
    return am_record(checks.epoch, thread, site, AM_ONE_THREAD, atomic);
  if (!am_in_group(checks, epoch))
    readers = AM_OTHER_THREADGROUP;
  else if (readers != AM_OTHER_THREADGROUP && epoch < checks.ordered[memory])
    return am_record(checks.epoch, thread, site, AM_ONE_THREAD, atomic);
  else if (readers <= AM_ONE_SIMDGROUP && behind_simdgroup_barrier(checks, memory, before, thread))
    return am_record(checks.epoch, thread, site, AM_ONE_THREAD, atomic);
  else
    readers = readers_with(before, thread);
  return am_record(checks.epoch, thread, site, readers, atomic & before & kAtomic);
}
