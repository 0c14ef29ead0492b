// The fast path of each check: one comparison with one shadow cell where nothing is wrong.
//
// Linked into the instrumented kernel as IR and inlined there; `size`, `align_mask` and `site` are
// constants. What is loaded of `checks` and of a region is invariant while a thread runs, and is
// loaded before the first branch, so that LLVM hoists it out of loops.
#include "findings.h"
#include "state.h"

// Not `inline`: the definitions must be there for the kernel to link against.
#define AM_CHECK __attribute__((always_inline))

namespace {

AM_INLINE unsigned shift_of(unsigned long size) { return __builtin_ctzl(size | kLargestCell); }

// How many cells there are for accesses of `size`: none where a cell is not of that size.
AM_INLINE unsigned long cells_of(const am_region& region, unsigned long size) {
  return size == 1ul << shift_of(size) ? region.cells[shift_of(size)] : 0;
}

// The index of the cell at `offset`. Where the offset is not a multiple of the cell's size the
// index is out of range: the offset is rotated, so that its lowest bits become the highest.
AM_INLINE unsigned long cell_at(unsigned long offset, unsigned long size) {
  unsigned shift = shift_of(size);
  return offset >> shift | offset << (-shift & 63);
}

// Whether the address of a cell has the alignment that the access needs.
AM_INLINE bool aligned(const char* address, unsigned long size, unsigned long align_mask) {
  return align_mask < size || ((unsigned long)address & align_mask) == 0;
}

// If nothing has accessed the cell at `address` since `since`, the access cannot race: the cell's
// record becomes `mine`.
AM_INLINE bool first_touch(const am_region& region, unsigned long cells, unsigned long since,
                           unsigned long mine, unsigned long am_cell::* record, const char* address,
                           unsigned long size, unsigned long align_mask) {
  am_cell* shadow = region.shadow;
  unsigned long index = cell_at(address - region.low, size);
  if (__builtin_expect(index >= cells, 0) || !aligned(address, size, align_mask)) return false;
  am_cell& cell = shadow[index];
  if ((cell.write >= since) | (cell.read >= since)) return false;
  cell.*record = mine;
  return true;
}

AM_INLINE char* store(am_checks* checks, unsigned number, unsigned since, char* address,
                      unsigned long size, unsigned long align_mask, unsigned site,
                      unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long cells = region.read_only ? 0 : cells_of(region, size);
  unsigned long mine = am_record(checks->epoch, thread, site);
  if (first_touch(region, cells, am_since(since), mine, &am_cell::write, address, size, align_mask))
    return address;
  return am_check_write(checks, number, address, size, site, thread);
}

// Whether every byte is 1; `size` is a constant, mostly that of a scalar.
AM_INLINE bool all_written(const char* written, unsigned long size) {
  constexpr unsigned long kOnes = 0x0101010101010101;
  unsigned long done = 0;
  bool all = true;
  for (; done + 8 <= size; done += 8) {
    unsigned long bytes;
    __builtin_memcpy(&bytes, written + done, 8);
    all &= bytes == kOnes;
  }
  if (size & 4) {
    unsigned bytes;
    __builtin_memcpy(&bytes, written + done, 4);
    all &= bytes == (unsigned)kOnes;
    done += 4;
  }
  for (; done < size; ++done) all &= written[done] == 1;
  return all;
}

}  // namespace

extern "C" {

// Read-only buffers have no cells: only bounds and alignment are checked.
AM_CHECK char* am_check_constant_load(am_checks* checks, unsigned number, char* address,
                                      unsigned long size, unsigned long align_mask, unsigned site,
                                      unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long offset = address - region.low;
  unsigned long end = size <= region.limit ? region.limit - size + 1 : 0;
  if (__builtin_expect((offset >= end) | (((unsigned long)address & align_mask) != 0), 0))
    return am_check_read(checks, number, address, size, site, thread);
  return address;
}

AM_CHECK char* am_check_load(am_checks* checks, unsigned number, char* address, unsigned long size,
                             unsigned long align_mask, unsigned site, unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long cells = region.fresh ? 0 : cells_of(region, size);
  unsigned long since = am_since(checks->first[AM_DEVICE]);
  unsigned long mine = am_record(checks->epoch, thread, site);
  if (first_touch(region, cells, since, mine, &am_cell::read, address, size, align_mask))
    return address;
  return am_check_read(checks, number, address, size, site, thread);
}

AM_CHECK char* am_check_store(am_checks* checks, unsigned number, char* address, unsigned long size,
                              unsigned long align_mask, unsigned site, unsigned thread) {
  unsigned since = checks->first[AM_DEVICE];
  return store(checks, number, since, address, size, align_mask, site, thread);
}

// Threadgroup memory. A tile is read many times between two barriers, and only the first few reads
// of a cell change its record: those by another thread, and by another simdgroup.
AM_CHECK char* am_check_shared_load(am_checks* checks, unsigned number, char* address,
                                    unsigned long size, unsigned long align_mask, unsigned site,
                                    unsigned thread) {
  const am_region& region = checks->regions[number];
  unsigned long cells = cells_of(region, size);
  unsigned simdgroup = thread & ~(AM_SIMD_WIDTH - 1u);
  unsigned long by_several = am_record(checks->epoch, 0, 0, AM_SEVERAL_SIMDGROUPS, kOpen);
  unsigned long by_mine = am_record(checks->epoch, simdgroup, 0, AM_ONE_SIMDGROUP, kOpen);
  const am_cell* shadow = region.shadow;
  unsigned long index = cell_at(address - region.low, size);
  if (__builtin_expect(index < cells, 1) && aligned(address, size, align_mask)) {
    unsigned long read = shadow[index].read;
    if (read >= by_several || read - by_mine < AM_SIMD_WIDTH << kThreadShift) return address;
  }
  return am_check_read(checks, number, address, size, site, thread);
}

AM_CHECK char* am_check_shared_store(am_checks* checks, unsigned number, char* address,
                                     unsigned long size, unsigned long align_mask, unsigned site,
                                     unsigned thread) {
  unsigned since = checks->ordered[AM_THREADGROUP];
  return store(checks, number, since, address, size, align_mask, site, thread);
}

// Arrays of one thread: `written` holds a byte for each byte of the array, 1 once it was written.
AM_CHECK char* am_check_array_load(am_checks* checks, char* base, unsigned long array_size,
                                   char* written, char* address, unsigned long size, unsigned site,
                                   unsigned thread) {
  unsigned long offset = address - base;
  bool outside = size > array_size || offset > array_size - size;
  if (__builtin_expect(outside || !all_written(written + offset, size), 0))
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
AM_CHECK char* am_check_table(am_checks* checks, char* base, unsigned long table_size,
                              char* address, unsigned long size, unsigned access, unsigned site,
                              unsigned thread) {
  unsigned long offset = address - base;
  if (__builtin_expect(access & AM_WRITE || size > table_size || offset > table_size - size, 0))
    return am_check_table_slowly(checks, base, table_size, address, size, access, site, thread);
  return address;
}

AM_CHECK void am_check_divisor(am_checks* checks, bool wrong, unsigned site, unsigned thread) {
  if (__builtin_expect(wrong, 0)) am_check_event(checks, AM_ARITHMETIC, site, thread);
}

// Something is used that comes from divisions by zero: a bit for each site from `first` on.
AM_CHECK void am_check_quotient(am_checks* checks, unsigned long bits, unsigned first,
                                unsigned thread) {
  if (__builtin_expect(!bits, 1)) return;
  for (; bits; bits &= bits - 1)
    am_check_event(checks, AM_ARITHMETIC, first + __builtin_ctzl(bits), thread);
}

// The same of variables that nobody has set.
AM_CHECK void am_check_unset(am_checks* checks, unsigned long bits, unsigned first,
                             unsigned thread) {
  if (__builtin_expect(!bits, 1)) return;
  for (; bits; bits &= bits - 1)
    am_check_event(checks, AM_UNINITIALISED, first + __builtin_ctzl(bits), thread);
}

// An index into a row or a member array that has `count` elements.
AM_CHECK void am_check_index(am_checks* checks, unsigned long index, unsigned long count,
                             unsigned site, unsigned thread) {
  if (__builtin_expect(index >= count, 0))
    am_check_index_slowly(checks, index, count, site, thread);
}

AM_CHECK void am_check_number(am_checks* checks, bool wrong, unsigned site, unsigned thread) {
  if (__builtin_expect(wrong, 0)) am_check_event(checks, AM_NAN, site, thread);
}

AM_CHECK void am_check_taken(am_checks* checks, bool taken, unsigned site, unsigned thread) {
  am_check_taken_slowly(checks, taken, site, thread);
}
}
