// The checker's memory of a launch: who touched which bytes, when, and what may be touched at all.
//
// Time is an epoch: a counter that grows at every barrier and every threadgroup. A checked launch runs
// its threadgroups one after the other, so that epochs order everything, and every run is the same.
// checker/records.py mirrors the structures that Python fills or reads.
#pragma once

#include <anymetal/machine.h>

enum am_memory : unsigned { AM_DEVICE = 0, AM_THREADGROUP = 1 };

// Bits: an atomic read-modify-write is AM_WRITE | AM_ATOMIC | AM_MODIFY.
enum am_access : unsigned { AM_READ = 0, AM_WRITE = 1, AM_ATOMIC = 2, AM_MODIFY = 4 };

// Last write and last reads of a few bytes. A record: epoch << 32 | thread << 22 | site << 6 | mark.
struct am_cell {
  unsigned long write;  // mark: 1 where it was atomic
  unsigned long read;   // mark: am_readers, and 8 where every read was atomic
};

// Who has read a cell since the last barrier of the threadgroup.
enum am_readers : unsigned {
  AM_ONE_THREAD = 0,
  AM_ONE_SIMDGROUP = 1,
  AM_SEVERAL_SIMDGROUPS = 2,
  AM_OTHER_THREADGROUP = 3,
};

constexpr unsigned kAtomicWrite = 1, kAtomicReads = 8, kReaders = 3;

// Bytes that belong to one buffer or one threadgroup variable.
struct am_region {
  char* low;
  unsigned long extent;  // bytes of the tensor itself
  unsigned long size;    // bytes up to the end of its storage, or the same
  am_cell* shadow;       // null: only bounds are checked
  unsigned shift;        // bytes of a cell, as a power of two
  unsigned memory;       // am_memory
  unsigned read_only;
  unsigned fresh;        // 1: nothing is in it before the launch writes
};

constexpr unsigned kBuffers = 31, kDynamic = 31, kMaxStatic = 256;
constexpr unsigned kFirstDynamic = kBuffers, kFirstStatic = kBuffers + kDynamic;
constexpr unsigned kRegions = kFirstStatic + kMaxStatic;
constexpr unsigned kUnknownRegion = kRegions;  // only the address tells

struct am_checks {
  unsigned epoch;
  unsigned first[2];         // epoch from which records count: of the launch for device memory, of
                             // the threadgroup for threadgroup memory
  unsigned group_first;      // epoch at the start of the threadgroup
  unsigned ordered[2];       // epoch of the last threadgroup barrier that orders device, threadgroup
  unsigned executed;         // epoch of the last threadgroup barrier, whatever it orders
  unsigned region_count;
  unsigned static_count;     // regions from kFirstStatic on that are threadgroup variables
  unsigned static_offset[kMaxStatic];  // of the threadgroup variables
  am_region regions[kRegions + 1];
};

AM_INLINE unsigned am_epoch_of(unsigned long record) { return record >> 32; }
AM_INLINE unsigned am_thread_of(unsigned long record) { return record >> 22 & 1023; }
AM_INLINE unsigned am_site_of(unsigned long record) { return record >> 6 & 0xffff; }

AM_INLINE unsigned long am_record(unsigned epoch, unsigned thread, unsigned site, unsigned mark) {
  return (unsigned long)epoch << 32 | (unsigned long)thread << 22 | site << 6 | mark;
}

extern "C" {
// Everything that is not plainly in order; returns the address to use, a sink where it is wrong.
char* am_check_slowly(am_checks* checks, unsigned region, char* address, unsigned long size,
                      unsigned access, unsigned site, unsigned thread);
char* am_check_array_slowly(am_checks* checks, char* base, unsigned long array_size, char* written,
                            char* address, unsigned long size, unsigned access, unsigned site,
                            unsigned thread);
char* am_check_table_slowly(am_checks* checks, char* base, unsigned long table_size, char* address,
                            unsigned long size, unsigned access, unsigned site, unsigned thread);
void am_check_taken_slowly(am_checks* checks, bool taken, unsigned site, unsigned thread);
// A division by zero, a shift past the width, a NaN: `kind` is an am_kind.
void am_check_event(am_checks* checks, unsigned kind, unsigned site, unsigned thread);
}
