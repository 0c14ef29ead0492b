// The slow path of a check: bounds, alignment, uninitialised reads and races, cell by cell.
#pragma once

#include "cells.h"
#include "findings.h"

__attribute__((noinline)) inline void judge(am_checked_launch& launch) {
  bool same = true;
  for (unsigned i = 0; i < launch.pending_size; ++i)
    same &= launch.pending_address[i] == launch.pending_value[i];
  launch.pending.severity = same ? AM_WARNING : AM_ERROR;
  add(launch.findings, launch.pending);
  launch.pending_address = nullptr;
}

inline void judge_pending(am_checked_launch& launch) {
  if (launch.pending_address) judge(launch);
}

// The bytes of a region that are a tensor's own, then those of its whole storage.
constexpr unsigned long am_region::* kExtents[] = {&am_region::extent, &am_region::size};

// One access being checked.
struct Check {
  am_checked_launch& launch;
  am_checks& checks;
  unsigned number;
  am_region* region;
  char* address;
  unsigned long size;
  unsigned access;
  unsigned site;
  unsigned thread;
  long offset;

  bool writes() const { return access & AM_WRITE; }
  bool atomic() const { return access & AM_ATOMIC; }
  bool reads() const { return !writes() || (access & AM_MODIFY); }
  unsigned mark() const { return atomic() ? kAtomic : 0; }

  am_finding finding(unsigned kind, unsigned severity) const {
    am_finding finding = {};
    finding.kind = kind;
    finding.severity = severity;
    finding.site = site;
    finding.other_site = kNoSite16;
    finding.region = number;
    finding.access = access;
    finding.thread = thread;
    finding.other_thread = kNoThread;
    finding.group = finding.other_group = launch.group;
    finding.offset = offset;
    finding.size = size;
    return finding;
  }

  void add(unsigned kind, unsigned severity, unsigned extra = 0) const {
    am_finding found = finding(kind, severity);
    found.extra = extra;
    ::add(launch.findings, found);
  }

  // An access outside of its memory, or of all memory; returns the address to use.
  char* outside() const {
    add(AM_OUT_OF_BOUNDS, AM_ERROR,
        (unsigned long)address < kNullBytes ? AM_AT_NULL : AM_ELSEWHERE);
    return launch.sink;
  }

  void conflict(unsigned long record, unsigned other_access, unsigned other_thread) {
    unsigned epoch = am_epoch_of(record);
    bool same_group = am_in_group(checks, epoch);
    unsigned simd = thread / AM_SIMD_WIDTH;
    bool waited =
        same_group && (epoch < checks.executed || (am_thread_of(record) / AM_SIMD_WIDTH == simd &&
                                                   epoch < launch.simd_executed[simd]));
    am_finding found = finding(waited ? AM_BARRIER_FLAGS : AM_RACE, AM_ERROR);
    found.other_site = am_site_of(record);
    found.other_access = other_access;
    found.other_thread = other_thread;
    found.other_group = group_of(launch, epoch);
    bool both_plain_writes = writes() && !atomic() && other_access == AM_WRITE;
    if (both_plain_writes && size <= sizeof(launch.pending_value)) {
      hold_until_written(found);
    } else {
      ::add(launch.findings, found);
    }
  }

  void hold_until_written(const am_finding& found) {
    if (launch.pending_address) return;  // one finding for all cells of an access
    launch.pending = found;
    launch.pending_address = address;
    launch.pending_size = size;
    __builtin_memcpy(launch.pending_value, address, size);
  }

  // Whether this access races with the last write of a cell; false where it does not.
  bool against_write(const am_cell& cell) {
    unsigned epoch = am_epoch_of(cell.write);
    unsigned other = am_thread_of(cell.write);
    if (epoch < checks.first[region->memory]) return false;
    bool was_atomic = cell.write & kAtomic;
    if (was_atomic && atomic()) return false;
    if (am_in_group(checks, epoch)) {
      if (other == thread || epoch < checks.ordered[region->memory]) return false;
      if (behind_simdgroup_barrier(checks, region->memory, cell.write, thread)) return false;
    }
    if (is_published(checks, region->memory, cell.write, thread)) return false;
    conflict(cell.write, was_atomic ? AM_WRITE | AM_ATOMIC : AM_WRITE, other);
    return true;
  }

  // Whether this write races with the reads of a cell.
  bool against_reads(const am_cell& cell) {
    unsigned epoch = am_epoch_of(cell.read);
    unsigned other = am_thread_of(cell.read);
    unsigned readers = am_readers_of(cell.read);
    if (epoch < checks.first[region->memory]) return false;
    if ((cell.read & kAtomic) && atomic()) return false;
    if (am_in_group(checks, epoch) && readers != AM_OTHER_THREADGROUP) {
      if (epoch < checks.ordered[region->memory]) return false;
      if (readers == AM_ONE_THREAD && other == thread) return false;
      if (readers != AM_SEVERAL_SIMDGROUPS &&
          behind_simdgroup_barrier(checks, region->memory, cell.read, thread))
        return false;
    }
    if (is_published(checks, region->memory, cell.read, thread)) return false;
    bool known = other != thread && readers != AM_OTHER_THREADGROUP;
    unsigned other_access = cell.read & kAtomic ? AM_READ | AM_ATOMIC : AM_READ;
    conflict(cell.read, other_access, known ? other : kNoThread);
    return true;
  }

  // Whether a record is of this launch and of an access through another argument.
  bool through_another(unsigned long record) const {
    if (am_epoch_of(record) < checks.first[region->memory]) return false;
    unsigned mine = launch.sites[site].region, other = launch.sites[am_site_of(record)].region;
    return mine == number && other != kUnknownRegion && other != mine;
  }

  // A read through a second argument: the record stays that of the first, and says so.
  void keep_first_reader(am_cell& cell, unsigned long before) const {
    bool mixed = am_epoch_of(before) >= checks.first[region->memory] && before & kMixed;
    if (!mixed && !through_another(before)) return;
    constexpr unsigned long kSites = 0xfffful << kSiteShift;
    cell.read = (cell.read & ~kSites) | (before & kSites) | kMixed;
  }

  // Apple's compiler takes for granted that what goes through one argument is not seen through
  // another. A thread that reads an element and then writes it is mostly safe in spite of that.
  void against_aliases(const am_cell& cell) {
    bool written = through_another(cell.write);
    bool read = through_another(cell.read) ||
                (am_epoch_of(cell.read) >= checks.first[region->memory] && cell.read & kMixed);
    if (!written && !(read && writes())) return;
    unsigned long record = written ? cell.write : cell.read;
    bool own = am_in_group(checks, am_epoch_of(record)) && am_thread_of(record) == thread &&
               am_readers_of(record) == AM_ONE_THREAD;
    unsigned other = launch.sites[am_site_of(record)].region;
    bool in_place = own && !written && checks.regions[other].low == region->low;
    am_finding found = finding(AM_ALIASING, in_place ? AM_WARNING : AM_ERROR);
    found.other_site = am_site_of(record);
    found.other_access = written ? AM_WRITE : AM_READ;
    found.other_thread = am_thread_of(record);
    found.other_group = group_of(launch, am_epoch_of(record));
    ::add(launch.findings, found);
  }

  // Whether some of the bytes lie between the elements of a tensor.
  bool is_between() const {
    unsigned long rest = offset;
    for (unsigned i = 0; i < region->step_count; ++i) {
      const am_step& step = region->steps[i];
      unsigned long index = rest / step.bytes;
      rest -= (index < step.length ? index : step.length - 1) * step.bytes;
    }
    return rest + size > region->run;
  }

  bool never_written(const am_cell& cell) const {
    return region->fresh && am_epoch_of(cell.write) < checks.first[region->memory];
  }

  // A value that only selects use is judged where one takes it (am_check_taken).
  void read_nothing() const {
    if (launch.sites[site].use == AM_MOVED || launch.sites[site].use == AM_FOLLOWED) return;
    if (launch.sites[site].use == AM_PICKED)
      launch.doubt[thread] = site + 1;
    else
      add(AM_UNINITIALISED, launch.sites[site].use == AM_UNUSED ? AM_WARNING : AM_ERROR);
  }

  void check_cells() {
    unsigned long first = (unsigned long)offset >> region->shift;
    unsigned long last = ((unsigned long)offset + size - 1) >> region->shift;
    bool missing = false;
    for (unsigned long i = first; i <= last; ++i) {
      am_cell& cell = region->shadow[i];
      if (reads()) missing |= never_written(cell);
      bool races = against_write(cell);
      if (writes()) races |= against_reads(cell);
      if (region->aliased && !races) against_aliases(cell);
      if (writes()) {
        cell.write = am_record(checks.epoch, thread, site, AM_ONE_THREAD, mark());
        cell.read &= ~(unsigned long)kOpen;
      } else {
        unsigned long before = cell.read;
        cell.read = joined(checks, region->memory, before, thread, site, mark());
        if (region->aliased) keep_first_reader(cell, before);
      }
    }
    if (missing) read_nothing();
  }

  // False where the address is not aligned to the element either: then it has no cells of its own.
  bool check_alignment() const {
    unsigned long place = (unsigned long)address;
    bool on_element = (place & (launch.sites[site].element - 1)) == 0;
    bool aligned = (place & (launch.sites[site].align - 1)) == 0;
    if (!aligned) add(AM_MISALIGNED, on_element ? AM_WARNING : AM_ERROR);
    return on_element;
  }

  bool is_within(const am_region& candidate, unsigned long bytes) const {
    return candidate.low && address >= candidate.low && size <= bytes &&
           (unsigned long)(address - candidate.low) <= bytes - size;
  }

  // A pointer of unknown provenance: the region its address lies in, if any. Of several views of
  // one storage it is the one that has the address for itself.
  bool find_region() {
    for (auto bytes : kExtents)
      for (unsigned i = 0; i < checks.region_count; ++i)
        if (is_within(checks.regions[i], checks.regions[i].*bytes)) {
          number = i;
          region = &checks.regions[i];
          return true;
        }
    return false;
  }

  void look_at_watched() {
    if (region->watched == AM_WATCHED_ONCE) {
      region->watched = AM_UNWATCHED;
      open_fast_path(*region);
    }
    if (region->step_count && (writes() || !region->strided) && is_between())
      add(AM_LAYOUT, writes() ? AM_ERROR : AM_WARNING);
  }

  char* run() {
    if (number == kUnknownRegion && !find_region()) {
      for (const am_range& range : launch.own)
        if (address >= range.low && address + size <= range.high) return address;
      return outside();
    }
    offset = address - region->low;
    region->touched = 1;
    if (!region->low || !is_within(*region, region->size)) return outside();
    if ((unsigned long)offset + size > region->extent) {
      add(AM_OUT_OF_BOUNDS, writes() ? AM_ERROR : AM_WARNING, AM_IN_STORAGE);
      return writes() ? launch.sink : address;
    }
    if (writes() && region->read_only) {
      add(AM_READ_ONLY, AM_ERROR);
      return launch.sink;
    }
    if (region->watched) look_at_watched();
    if (check_alignment() && region->shadow && size) check_cells();
    if (atomic() && launch.has_fences) publications.access(thread, address, reads(), writes());
    return address;
  }
};

extern "C" {

char* am_check_slowly(am_checks* checks, unsigned region, char* address, unsigned long size,
                      unsigned access, unsigned site, unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  judge_pending(launch);
  Check check = {launch, *checks, region, &checks->regions[region], address, size, access,
                 site,   thread,  0};
  return check.run();
}

// What reads of nothing give: always the same.
static char nothing[64];

char* am_check_array_slowly(am_checks* checks, char* base, unsigned long array_size, char* written,
                            char* address, unsigned long size, unsigned access, unsigned site,
                            unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  Check check = {launch, *checks, kUnknownRegion, nullptr, address,
                 size,   access,  site,           thread,  address - base};
  if (size > array_size || (unsigned long)(address - base) > array_size - size) {
    check.add(AM_OUT_OF_BOUNDS, AM_ERROR);
    return launch.sink;
  }
  if (access & AM_WRITE) return address;
  check.read_nothing();
  bool moved = launch.sites[site].use == AM_MOVED;
  return size <= sizeof(nothing) && !moved ? nothing : address;
}

char* am_check_table_slowly(am_checks* checks, char* base, unsigned long table_size, char* address,
                            unsigned long size, unsigned access, unsigned site, unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  Check check = {launch, *checks, kUnknownRegion, nullptr, address,
                 size,   access,  site,           thread,  address - base};
  bool outside = size > table_size || (unsigned long)(address - base) > table_size - size;
  check.add(outside ? AM_OUT_OF_BOUNDS : AM_READ_ONLY, AM_ERROR);
  return launch.sink;
}

// A pointer of unknown provenance in a program with constant tables: it may point into one of them.
char* am_check_elsewhere(am_checks* checks, const am_table* tables, unsigned count, char* address,
                         unsigned long size, unsigned access, unsigned site, unsigned thread) {
  for (unsigned i = 0; i < count; ++i) {
    unsigned long offset = address - tables[i].low;
    if (size > tables[i].size || offset > tables[i].size - size) continue;
    if (!(access & AM_WRITE)) return address;
    return am_check_table_slowly(checks, tables[i].low, tables[i].size, address, size, access, site,
                                 thread);
  }
  return am_check_slowly(checks, kUnknownRegion, address, size, access, site, thread);
}

// A selection took the value that `site` read; `site` read nothing if there is a doubt.
void am_check_taken_slowly(am_checks* checks, bool taken, unsigned site, unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  if (launch.doubt[thread] != site + 1) return;
  if (taken) {
    Check check = {launch, *checks, kUnknownRegion, nullptr, nullptr, 0, AM_READ, site, thread, 0};
    check.add(AM_UNINITIALISED, AM_ERROR);
  }
  launch.doubt[thread] = 0;
}

// The thread for functions that were not inlined into the kernel: those are checked by one worker,
// and there is one checked launch at a time.
static am_checks* current_checks;
static unsigned current_thread;

void am_check_enter(am_checks* checks, unsigned thread) {
  current_checks = checks;
  current_thread = thread;
}

char* am_check_here(char* address, unsigned long size, unsigned access, unsigned site) {
  return am_check_slowly(current_checks, kUnknownRegion, address, size, access, site,
                         current_thread);
}

// A load or store of a simdgroup matrix, which all lanes must come to; run_listener.h compares
// them.
void am_check_matrix(am_checks* checks, unsigned number, unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  launch.has_matrices = 1;
  launch.matrices[thread] = launch.matrices[thread] * 31 + number + 1;
  launch.last_matrix[thread] = launch.matrix_site + number;
}

// The thread ends here, by a return of the author's.
void am_check_return(am_checks* checks, unsigned thread) {
  ((am_checked_launch*)checks)->returned[thread] = checks->group_first;
}

// The thread is about to read the value of another lane; run_listener.h knows who is there.
void am_check_shuffle(am_checks* checks, unsigned source, unsigned width, unsigned number,
                      unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  unsigned lane = thread % width, from = number;
  if (source == AM_XOR) from = lane ^ number;
  if (source == AM_ABOVE) from = lane + number < width ? lane + number : lane;
  if (source == AM_BELOW) from = number <= lane ? lane - number : lane;
  launch.has_shuffles = 1;
  unsigned first = thread % AM_SIMD_WIDTH - lane;
  launch.shuffles[thread] = 1 + (from < width ? first + from : AM_SIMD_WIDTH + from);
}

// Metal's fences are of sequential consistency, or do nothing.
void am_check_fence(am_checks* checks, unsigned flags, unsigned order, unsigned scope,
                    unsigned thread) {
  constexpr unsigned kSequential = 5, kDevice = 2, kSystem = 3;
  if (order != kSequential) return;
  am_checked_launch& launch = *(am_checked_launch*)checks;
  judge_pending(launch);
  bool for_all = scope == kDevice || scope == kSystem;
  publications.fence({(unsigned)launch.group,
                      thread,
                      am_tick(*checks),
                      {checks->ordered[AM_DEVICE], checks->ordered[AM_THREADGROUP]},
                      flags | (for_all ? flags << kForAllGroups : 0)});
}

void am_check_event(am_checks* checks, unsigned kind, unsigned site, unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  // What follows from the first NaN is not news.
  if (kind == AM_NAN && launch.first_number && launch.first_number != site + 1) return;
  if (kind == AM_NAN) launch.first_number = site + 1;
  Check check = {launch, *checks, kUnknownRegion, nullptr, nullptr, 0, AM_READ, site, thread, 0};
  check.add(kind, AM_ERROR);
}

void am_check_index_slowly(am_checks* checks, unsigned long index, unsigned long count,
                           unsigned site, unsigned thread) {
  am_checked_launch& launch = *(am_checked_launch*)checks;
  Check check = {launch, *checks, kUnknownRegion, nullptr, nullptr,
                 count,  AM_READ, site,           thread,  (long)index};
  check.add(AM_OUT_OF_BOUNDS, AM_ERROR, AM_IN_OBJECT);
}

// Cells of a buffer that this launch did not write: how many, and the first.
unsigned long am_unwritten(const am_checks* checks, unsigned region, unsigned long* first,
                           unsigned long* written) {
  const am_region& place = checks->regions[region];
  unsigned long cells = place.extent >> place.shift, missing = 0;
  *first = cells;
  for (unsigned long i = cells; i-- > 0;)
    if (am_epoch_of(place.shadow[i].write) < checks->first[AM_DEVICE]) {
      ++missing;
      *first = i;
    }
  *written = cells - missing;
  return missing;
}
}
