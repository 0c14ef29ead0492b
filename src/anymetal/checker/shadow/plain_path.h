// The out-of-line path of reads and writes that the inline check does not settle; most of them do
// not race.
#pragma once

#include "cells.h"
#include "slow_path.h"

// The cells of a plain access: none unless it is in bounds, aligned and covers whole cells.
class Cells {
 public:
  Cells(const am_checked_launch& launch, const am_region& region, const char* address,
        unsigned long size, unsigned site) {
    unsigned long offset = address - region.low, mask = (1ul << region.shift) - 1;
    bool inside = size && size <= region.extent && offset <= region.extent - size;
    bool aligned = ((unsigned long)address & (launch.sites[site].align - 1)) == 0;
    bool whole = region.cells[region.shift] && ((offset | size) & mask) == 0;
    if (!inside || !aligned || !whole) return;
    first_ = region.shadow + (offset >> region.shift);
    last_ = first_ + (size >> region.shift);
  }

  bool none() const { return first_ == last_; }
  bool one() const { return last_ - first_ == 1; }
  am_cell* begin() const { return first_; }
  am_cell* end() const { return last_; }

 private:
  am_cell* first_ = nullptr;
  am_cell* last_ = nullptr;
};

// Whether a read adds nothing to the cell's record.
AM_INLINE bool is_known(const am_checks& checks, unsigned memory, unsigned long before,
                        unsigned thread) {
  if (am_epoch_of(before) != checks.epoch) return false;
  if (memory == AM_DEVICE) return am_thread_of(before) == thread;
  return readers_with(before, thread) == am_readers_of(before);
}

// Records a read that does not race.
AM_INLINE void note_read(const am_checks& checks, unsigned memory, am_cell& cell, bool alone,
                         unsigned site, unsigned thread) {
  bool ordered = am_epoch_of(cell.write) < checks.ordered[memory];
  unsigned open = memory == AM_THREADGROUP && ordered ? kOpen : 0;
  if (alone && is_known(checks, memory, cell.read, thread))
    cell.read |= open;
  else
    cell.read = joined(checks, memory, cell.read, thread, site, 0) | open;
}

// A function of its own: only calls of the slow path spill the kernel's registers.
template <unsigned access>
AM_OUT_OF_LINE __attribute__((noinline)) char* look_closely(am_checks* checks, unsigned number,
                                                            char* address, unsigned long size,
                                                            unsigned site, unsigned thread) {
  return am_check_slowly(checks, number, address, size, access, site, thread);
}

extern "C" {

AM_OUT_OF_LINE char* am_check_read(am_checks* checks, unsigned number, char* address,
                                   unsigned long size, unsigned site, unsigned thread) {
  const am_checked_launch& launch = *(am_checked_launch*)checks;
  const am_region& region = checks->regions[number];
  Cells cells(launch, region, address, size, site);
  bool quiet = !cells.none() && !launch.pending_address;
  for (am_cell& cell : cells) quiet = quiet && may_read(*checks, region, cell, thread);
  if (!quiet) return look_closely<AM_READ>(checks, number, address, size, site, thread);
  for (am_cell& cell : cells) note_read(*checks, region.memory, cell, cells.one(), site, thread);
  return address;
}

AM_OUT_OF_LINE char* am_check_write(am_checks* checks, unsigned number, char* address,
                                    unsigned long size, unsigned site, unsigned thread) {
  const am_checked_launch& launch = *(am_checked_launch*)checks;
  const am_region& region = checks->regions[number];
  Cells cells(launch, region, address, size, site);
  bool quiet = !cells.none() && !launch.pending_address && !region.read_only;
  for (am_cell& cell : cells) quiet = quiet && may_write(*checks, region, cell, thread);
  if (!quiet) return look_closely<AM_WRITE>(checks, number, address, size, site, thread);
  for (am_cell& cell : cells) cell.write = am_record(checks->epoch, thread, site);
  return address;
}
}
