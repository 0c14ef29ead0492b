// The checks that stand in a kernel before each access: quick when all is well, else am_check_slowly.
//
// Linked into the instrumented kernel as IR and inlined there; `size`, `align_mask` and `site` are constants.
#include "findings.h"
#include "state.h"

// Not `inline`: the definitions must be there for the kernel to link against.
#define AM_CHECK __attribute__((always_inline))

namespace {

// Whether `record` can be in no conflict with `thread` now: of an earlier launch, behind a barrier of this
// threadgroup, or its own. (Behind a simdgroup barrier counts too, but is left to the slow path.)
AM_INLINE bool settled(const am_checks* checks, unsigned memory, unsigned long record,
                       unsigned thread) {
  unsigned epoch = am_epoch_of(record), ordered = checks->ordered[memory];
  if (epoch < checks->first[memory]) return true;
  return epoch >= checks->group_first && (epoch < ordered || am_thread_of(record) == thread);
}

// The record of a read, joined with what was known of earlier ones.
AM_INLINE unsigned long joined(const am_checks* checks, unsigned memory, unsigned long before,
                               unsigned long mine) {
  unsigned epoch = am_epoch_of(before), ordered = checks->ordered[memory];
  if (epoch < checks->first[memory]) return mine;
  unsigned readers = before & kReaders;
  unsigned atomic = before & mine & kAtomicReads;
  if (epoch < checks->group_first) {
    readers = AM_OTHER_THREADGROUP;
  } else if (epoch < ordered) {
    if (readers != AM_OTHER_THREADGROUP) return mine;
  } else if (am_thread_of(before) != am_thread_of(mine)) {
    unsigned seen = am_thread_of(before) / AM_SIMD_WIDTH == am_thread_of(mine) / AM_SIMD_WIDTH
                        ? AM_ONE_SIMDGROUP
                        : AM_SEVERAL_SIMDGROUPS;
    readers = readers > seen ? readers : seen;
  }
  return (mine & ~(unsigned long)(kReaders | kAtomicReads)) | readers | atomic;
}

AM_INLINE bool inside(const am_region& region, unsigned long offset, unsigned long size,
                      const char* address, unsigned long align_mask) {
  return size <= region.extent && offset <= region.extent - size &&
         ((unsigned long)address & align_mask) == 0;
}

// Whether the access is to one whole cell: all but accesses of mixed sizes are.
AM_INLINE bool on_a_cell(const am_region& region, unsigned long offset, unsigned long size) {
  return size == 1ul << region.shift && (offset & (size - 1)) == 0;
}

}  // namespace

extern "C" {

AM_CHECK char* am_check_load(am_checks* checks, unsigned number, char* address, unsigned long size,
                              unsigned long align_mask, unsigned site, unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long offset = address - region.low;
  bool in_place = inside(region, offset, size, address, align_mask);
  if (in_place && !region.shadow) return address;
  if (__builtin_expect(!in_place || !on_a_cell(region, offset, size), 0))
    return am_check_slowly(checks, number, address, size, AM_READ, site, thread);
  unsigned memory = region.memory;
  unsigned long mine = am_record(checks->epoch, thread, site, 0);
  unsigned fresh_since = region.fresh ? checks->first[memory] : 0;
  am_cell* cell = region.shadow + (offset >> region.shift);
  unsigned long write = cell->write, before = cell->read;
  bool quiet = settled(checks, memory, write, thread) && am_epoch_of(write) >= fresh_since;
  if (__builtin_expect(!quiet || (before & kAtomicReads), 0))
    return am_check_slowly(checks, number, address, size, AM_READ, site, thread);
  if (before >> 22 != mine >> 22) cell->read = joined(checks, memory, before, mine);
  return address;
}

AM_CHECK char* am_check_store(am_checks* checks, unsigned number, char* address, unsigned long size,
                               unsigned long align_mask, unsigned site, unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long offset = address - region.low;
  if (__builtin_expect(!inside(region, offset, size, address, align_mask) || !region.shadow ||
                           !on_a_cell(region, offset, size),
                       0))
    return am_check_slowly(checks, number, address, size, AM_WRITE, site, thread);
  unsigned memory = region.memory;
  am_cell* cell = region.shadow + (offset >> region.shift);
  unsigned long read = cell->read;
  bool quiet = settled(checks, memory, cell->write, thread) &&
               settled(checks, memory, read, thread) &&
               (am_epoch_of(read) < checks->first[memory] || (read & kReaders) == AM_ONE_THREAD ||
                (am_epoch_of(read) < checks->ordered[memory] &&
                 (read & kReaders) != AM_OTHER_THREADGROUP));
  if (__builtin_expect(!quiet, 0))
    return am_check_slowly(checks, number, address, size, AM_WRITE, site, thread);
  cell->write = am_record(checks->epoch, thread, site, 0);
  return address;
}

// The same for threadgroup memory, where every record that counts is of this threadgroup: one
// comparison with the last barrier decides. Tiled kernels spend their checked time here.
AM_CHECK char* am_check_shared_load(am_checks* checks, unsigned number, char* address,
                                    unsigned long size, unsigned long align_mask, unsigned site,
                                    unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long offset = address - region.low;
  if (__builtin_expect(!inside(region, offset, size, address, align_mask) ||
                           !on_a_cell(region, offset, size),
                       0))
    return am_check_slowly(checks, number, address, size, AM_READ, site, thread);
  unsigned first = checks->first[AM_THREADGROUP], ordered = checks->ordered[AM_THREADGROUP];
  am_cell* cell = region.shadow + (offset >> region.shift);
  unsigned long write = cell->write, before = cell->read;
  unsigned epoch = am_epoch_of(write);
  bool unordered = (epoch >= ordered) & (am_thread_of(write) != thread);
  if (__builtin_expect((epoch < first) | unordered | ((before & kAtomicReads) != 0), 0))
    return am_check_slowly(checks, number, address, size, AM_READ, site, thread);
  bool same_simdgroup = am_thread_of(before) / AM_SIMD_WIDTH == thread / AM_SIMD_WIDTH;
  unsigned seen = am_thread_of(before) == thread ? AM_ONE_THREAD
                  : same_simdgroup              ? AM_ONE_SIMDGROUP
                                                : AM_SEVERAL_SIMDGROUPS;
  unsigned readers = before & kReaders;
  // A tile is read many times between two barriers, and only the first few reads say anything new.
  if (am_epoch_of(before) == checks->epoch && readers >= seen) return address;
  readers = readers > seen ? readers : seen;
  cell->read = am_record(checks->epoch, thread, site, am_epoch_of(before) < ordered ? 0 : readers);
  return address;
}

AM_CHECK char* am_check_shared_store(am_checks* checks, unsigned number, char* address,
                                     unsigned long size, unsigned long align_mask, unsigned site,
                                     unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long offset = address - region.low;
  if (__builtin_expect(!inside(region, offset, size, address, align_mask) ||
                           !on_a_cell(region, offset, size),
                       0))
    return am_check_slowly(checks, number, address, size, AM_WRITE, site, thread);
  unsigned ordered = checks->ordered[AM_THREADGROUP];
  am_cell* cell = region.shadow + (offset >> region.shift);
  unsigned long write = cell->write, read = cell->read;
  bool write_settled = (am_epoch_of(write) < ordered) | (am_thread_of(write) == thread);
  bool only_mine = (am_thread_of(read) == thread) & ((read & kReaders) == AM_ONE_THREAD);
  if (__builtin_expect(!(write_settled & ((am_epoch_of(read) < ordered) | only_mine)), 0))
    return am_check_slowly(checks, number, address, size, AM_WRITE, site, thread);
  cell->write = am_record(checks->epoch, thread, site, 0);
  return address;
}

// Arrays of one thread: `written` holds a byte for each byte of the array, 1 once it was written.
AM_CHECK char* am_check_array_load(am_checks* checks, char* base, unsigned long array_size,
                                    char* written, char* address, unsigned long size, unsigned site,
                                    unsigned thread) {
  unsigned long offset = address - base;
  if (__builtin_expect(size > array_size || offset > array_size - size, 0))
    return am_check_array_slowly(checks, base, array_size, written, address, size, AM_READ, site,
                                 thread);
  for (unsigned long i = 0; i < size; ++i)
    if (__builtin_expect(!written[offset + i], 0))
      return am_check_array_slowly(checks, base, array_size, written, address, size, AM_READ, site,
                                   thread);
  return address;
}

AM_CHECK char* am_check_array_store(am_checks* checks, char* base, unsigned long array_size,
                                     char* written, char* address, unsigned long size, unsigned site,
                                     unsigned thread) {
  unsigned long offset = address - base;
  if (__builtin_expect(size > array_size || offset > array_size - size, 0))
    return am_check_array_slowly(checks, base, array_size, written, address, size, AM_WRITE, site,
                                 thread);
  __builtin_memset(written + offset, 1, size);
  return address;
}

// Constant tables of the program: bounds only; nothing may write there.
AM_CHECK char* am_check_table(am_checks* checks, char* base, unsigned long table_size, char* address,
                              unsigned long size, unsigned access, unsigned site, unsigned thread) {
  unsigned long offset = address - base;
  if (__builtin_expect(access & AM_WRITE || size > table_size || offset > table_size - size, 0))
    return am_check_table_slowly(checks, base, table_size, address, size, access, site, thread);
  return address;
}

AM_CHECK void am_check_divisor(am_checks* checks, bool wrong, unsigned site, unsigned thread) {
  if (__builtin_expect(wrong, 0)) am_check_event(checks, AM_ARITHMETIC, site, thread);
}

AM_CHECK void am_check_number(am_checks* checks, bool wrong, unsigned site, unsigned thread) {
  if (__builtin_expect(wrong, 0)) am_check_event(checks, AM_NAN, site, thread);
}

AM_CHECK void am_check_taken(am_checks* checks, bool taken, unsigned site, unsigned thread) {
  am_check_taken_slowly(checks, taken, site, thread);
}
}
