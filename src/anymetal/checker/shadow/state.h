// The checker's memory of a launch: who touched which bytes, when, and what may be touched at all.
//
// Time is an epoch: a counter that grows at every barrier and every threadgroup. Each worker has a
// clock of its own; clocks of several workers step over each other's epochs, so that an epoch tells
// whose it is. The run that findings are reported of has one worker: its threadgroups run one after
// the other, epochs order everything, and every run is the same. A run of several workers only
// screens a launch: whatever it finds, that run is done anew by one (checker/screening.py).
// records.h has the structures that Python fills or reads.
#pragma once

#include <anymetal/machine.h>

#include "records.h"

// A record of an am_cell, from its highest bit: epoch (32 bits), kOpen,
// am_readers (2), thread (10), site (16), one bit unused, kMixed, kAtomic. Records compare as their
// epochs do.
// Who has read a cell since the last barrier of the threadgroup.
enum am_readers : unsigned {
  AM_ONE_THREAD = 0,
  AM_ONE_SIMDGROUP = 1,
  AM_SEVERAL_SIMDGROUPS = 2,
  AM_OTHER_THREADGROUP = 3,
};

constexpr unsigned kSiteShift = 3, kThreadShift = 19, kReadersShift = 29;
constexpr unsigned kAtomic = 1;  // the write was atomic, or every read was
// Of reads of memory that several arguments are in: they went through more than one of them. The
// site is that of the first.
constexpr unsigned kMixed = 2;
// Of reads: since the record's epoch began, the cell holds what any thread of the threadgroup may
// read.
constexpr unsigned kOpen = 1u << 31;

AM_INLINE unsigned am_epoch_of(unsigned long record) { return record >> 32; }
AM_INLINE unsigned am_thread_of(unsigned long record) { return record >> kThreadShift & 1023; }
AM_INLINE unsigned am_site_of(unsigned long record) { return record >> kSiteShift & 0xffff; }
AM_INLINE unsigned am_readers_of(unsigned long record) { return record >> kReadersShift & 3; }

// The oldest record of an epoch.
AM_INLINE unsigned long am_since(unsigned epoch) { return (unsigned long)epoch << 32; }

// Time goes on.
AM_INLINE unsigned am_tick(am_checks& checks) { return checks.epoch += checks.step; }

// Whether an epoch is one of the threadgroup that runs here.
AM_INLINE bool am_in_group(const am_checks& checks, unsigned epoch) {
  return epoch >= checks.group_first && ((epoch - checks.group_first) & (checks.step - 1)) == 0;
}

AM_INLINE unsigned long am_record(unsigned epoch, unsigned thread, unsigned site,
                                  unsigned readers = AM_ONE_THREAD, unsigned marks = 0) {
  return am_since(epoch) | readers << kReadersShift | thread << kThreadShift | site << kSiteShift |
         marks;
}

// These leave the registers of the kernel's loop as they are, so that it keeps its values there.
#define AM_OUT_OF_LINE __attribute__((preserve_most))

extern "C" {
// Reads and writes that a glance at one cell does not settle.
AM_OUT_OF_LINE char* am_check_read(am_checks* checks, unsigned region, char* address,
                                   unsigned long size, unsigned site, unsigned thread);
AM_OUT_OF_LINE char* am_check_write(am_checks* checks, unsigned region, char* address,
                                    unsigned long size, unsigned site, unsigned thread);
// Everything that is not plainly in order; returns the address to use, a sink where it is wrong.
char* am_check_slowly(am_checks* checks, unsigned region, char* address, unsigned long size,
                      unsigned access, unsigned site, unsigned thread);
char* am_check_array_slowly(am_checks* checks, char* base, unsigned long array_size, char* written,
                            char* address, unsigned long size, unsigned access, unsigned site,
                            unsigned thread);
char* am_check_table_slowly(am_checks* checks, char* base, unsigned long table_size, char* address,
                            unsigned long size, unsigned access, unsigned site, unsigned thread);
char* am_check_elsewhere(am_checks* checks, const am_table* tables, unsigned count, char* address,
                         unsigned long size, unsigned access, unsigned site, unsigned thread);
void am_check_taken_slowly(am_checks* checks, bool taken, unsigned site, unsigned thread);
void am_check_index_slowly(am_checks* checks, unsigned long index, unsigned long count,
                           unsigned site, unsigned thread);
// A division by zero, a shift past the width, a NaN: `kind` is an am_kind.
void am_check_event(am_checks* checks, unsigned kind, unsigned site, unsigned thread);
}
