// Made by `python tools/headers.py` from checker/records.py: change that.
// clang-format off
#pragma once

constexpr unsigned kLargestCell = 16u;
constexpr unsigned kBuffers = 31u;
constexpr unsigned kDynamic = 31u;
constexpr unsigned kMaxStatic = 256u;
constexpr unsigned kFirstDynamic = 31u;
constexpr unsigned kFirstStatic = 62u;
constexpr unsigned kRegions = 318u;
constexpr unsigned kUnknownRegion = 318u;
constexpr unsigned kMaxSimdgroups = 32u;
constexpr unsigned kMaxFindings = 1024u;
constexpr unsigned kNoSite16 = 65535u;
constexpr unsigned kNoThread = 4294967295u;
constexpr unsigned kNullBytes = 65536u;
constexpr unsigned kOfQuads = 1u;

// The two memories that threads share.
enum am_memory : unsigned {
  AM_DEVICE = 0,
  AM_THREADGROUP = 1,
};

// Bits: an atomic read-modify-write is AM_WRITE | AM_ATOMIC | AM_MODIFY.
enum am_access : unsigned {
  AM_READ = 0,
  AM_WRITE = 1,
  AM_ATOMIC = 2,
  AM_MODIFY = 4,
};

// What becomes of a value that is read.
enum am_use : unsigned {
  AM_USED = 0,
  AM_UNUSED = 1,
  AM_PICKED = 2,  // only by selections, which may drop it
  AM_MOVED = 3,  // copied with a structure, whether anybody has written it or not
  AM_FOLLOWED = 4,  // by a bit, which reports it where it is used
};

// Why accesses to a region are looked at one by one.
enum am_watch : unsigned {
  AM_UNWATCHED = 0,
  AM_WATCHED_ONCE = 1,  // until it is touched
  AM_WATCHED = 2,  // there are gaps in it, or other arguments in its memory
};

// How a number says which lane a shuffle reads from.
enum am_source : unsigned {
  AM_LANE = 0,
  AM_XOR = 1,
  AM_ABOVE = 2,  // at the edge a thread keeps its own value
  AM_BELOW = 3,
};

// Whether a finding is certain to be a defect.
enum am_severity : unsigned {
  AM_WARNING = 0,
  AM_ERROR = 1,
};

// What an access out of bounds meets: the detail of such a finding.
enum am_beyond : unsigned {
  AM_ELSEWHERE = 0,
  AM_IN_STORAGE = 1,  // the rest of the storage that a tensor is a view of
  AM_AT_NULL = 2,  // no memory: a null pointer, perhaps with an index
  AM_IN_OBJECT = 3,  // the same variable: past the end of a row or member
};

enum am_kind : unsigned {
  AM_OUT_OF_BOUNDS = 0,
  AM_RACE = 1,
  AM_BARRIER_DIVERGENCE = 2,
  AM_BARRIER_FLAGS = 3,
  AM_UNINITIALISED = 4,
  AM_MISALIGNED = 5,
  AM_LAYOUT = 6,
  AM_ALIASING = 7,
  AM_READ_ONLY = 8,
  AM_COLLECTIVE_DIVERGENCE = 9,
  AM_SHUFFLE = 10,
  AM_ARITHMETIC = 11,
  AM_NAN = 12,
};

// Last write and last reads of a few bytes; state.h says what the bits of a record are.
struct am_cell {
  unsigned long write;
  unsigned long read;
};
static_assert(__builtin_offsetof(am_cell, write) == 0);
static_assert(__builtin_offsetof(am_cell, read) == 8);
static_assert(sizeof(am_cell) == 16);

// One dimension of a tensor that has gaps between its elements.
struct am_step {
  unsigned long bytes;  // from one to the next
  unsigned long length;
};
static_assert(__builtin_offsetof(am_step, bytes) == 0);
static_assert(__builtin_offsetof(am_step, length) == 8);
static_assert(sizeof(am_step) == 16);

// Bytes that belong to one buffer or one threadgroup variable.
struct am_region {
  char* low;
  unsigned long extent;  // bytes of the tensor itself
  unsigned long size;  // bytes up to the end of its storage, or the same
  am_cell* shadow;  // null: only bounds are checked
  unsigned shift;  // bytes of a cell, as a power of two
  unsigned memory;  // am_memory
  unsigned read_only;
  unsigned fresh;  // 1: nothing is in it before the launch writes
  unsigned watched;  // am_watch: whether accesses take the slow path
  unsigned touched;  // 1: the launch has touched what is watched
  unsigned aliased;  // 1: other arguments are in its memory
  unsigned strided;  // 1: the kernel takes strides, and may read in gaps
  unsigned step_count;  // 0: there are no gaps between the elements
  const am_step* steps;  // of the dimensions, the largest first
  unsigned long run;  // bytes without a gap at each of these places
  unsigned long limit;  // `extent` for loads of constants, 0 if watched
  // whole cells of `extent` at `shift`, if cells and addresses are in step; 0 elsewhere
  unsigned long cells[5];
};
static_assert(__builtin_offsetof(am_region, low) == 0);
static_assert(__builtin_offsetof(am_region, extent) == 8);
static_assert(__builtin_offsetof(am_region, size) == 16);
static_assert(__builtin_offsetof(am_region, shadow) == 24);
static_assert(__builtin_offsetof(am_region, shift) == 32);
static_assert(__builtin_offsetof(am_region, memory) == 36);
static_assert(__builtin_offsetof(am_region, read_only) == 40);
static_assert(__builtin_offsetof(am_region, fresh) == 44);
static_assert(__builtin_offsetof(am_region, watched) == 48);
static_assert(__builtin_offsetof(am_region, touched) == 52);
static_assert(__builtin_offsetof(am_region, aliased) == 56);
static_assert(__builtin_offsetof(am_region, strided) == 60);
static_assert(__builtin_offsetof(am_region, step_count) == 64);
static_assert(__builtin_offsetof(am_region, steps) == 72);
static_assert(__builtin_offsetof(am_region, run) == 80);
static_assert(__builtin_offsetof(am_region, limit) == 88);
static_assert(__builtin_offsetof(am_region, cells) == 96);
static_assert(sizeof(am_region) == 136);

// What the checks in a kernel read: epochs and regions.
struct am_checks {
  unsigned epoch;
  unsigned step;  // of the clock: a power of two, no less than the workers
  unsigned first[2];  // epoch from which records of a memory count
  unsigned group_first;  // epoch at the start of the threadgroup
  unsigned ordered[2];  // of the last barrier that orders a memory
  unsigned executed;  // of the last barrier, whatever it orders
  unsigned region_count;
  unsigned static_count;  // threadgroup variables: from kFirstStatic on
  unsigned static_offset[256];  // of the threadgroup variables
  am_region regions[319];
};
static_assert(__builtin_offsetof(am_checks, epoch) == 0);
static_assert(__builtin_offsetof(am_checks, step) == 4);
static_assert(__builtin_offsetof(am_checks, first) == 8);
static_assert(__builtin_offsetof(am_checks, group_first) == 16);
static_assert(__builtin_offsetof(am_checks, ordered) == 20);
static_assert(__builtin_offsetof(am_checks, executed) == 28);
static_assert(__builtin_offsetof(am_checks, region_count) == 32);
static_assert(__builtin_offsetof(am_checks, static_count) == 36);
static_assert(__builtin_offsetof(am_checks, static_offset) == 40);
static_assert(__builtin_offsetof(am_checks, regions) == 1064);
static_assert(sizeof(am_checks) == 44448);

// One finding as the runtime records it.
struct am_finding {
  unsigned kind;  // am_kind
  unsigned severity;  // am_severity
  unsigned site;  // of an access, or of a suspend for the kinds of divergence
  unsigned other_site;  // kNoSite16: there is none
  unsigned region;
  unsigned access;  // am_access of the one that completes it
  unsigned other_access;  // and of the other
  unsigned thread;  // index in its threadgroup
  unsigned other_thread;  // kNoThread: one of several
  unsigned extra;  // active lanes of a collective, or threads that had ended
  unsigned long group;
  unsigned long other_group;
  long offset;  // bytes from the start of the region or array
  unsigned long size;
  unsigned long count;
};
static_assert(__builtin_offsetof(am_finding, kind) == 0);
static_assert(__builtin_offsetof(am_finding, severity) == 4);
static_assert(__builtin_offsetof(am_finding, site) == 8);
static_assert(__builtin_offsetof(am_finding, other_site) == 12);
static_assert(__builtin_offsetof(am_finding, region) == 16);
static_assert(__builtin_offsetof(am_finding, access) == 20);
static_assert(__builtin_offsetof(am_finding, other_access) == 24);
static_assert(__builtin_offsetof(am_finding, thread) == 28);
static_assert(__builtin_offsetof(am_finding, other_thread) == 32);
static_assert(__builtin_offsetof(am_finding, extra) == 36);
static_assert(__builtin_offsetof(am_finding, group) == 40);
static_assert(__builtin_offsetof(am_finding, other_group) == 48);
static_assert(__builtin_offsetof(am_finding, offset) == 56);
static_assert(__builtin_offsetof(am_finding, size) == 64);
static_assert(__builtin_offsetof(am_finding, count) == 72);
static_assert(sizeof(am_finding) == 80);

// The findings of a launch, equal ones folded.
struct am_findings {
  unsigned long count;
  unsigned long dropped;
  am_finding entries[1024];
};
static_assert(__builtin_offsetof(am_findings, count) == 0);
static_assert(__builtin_offsetof(am_findings, dropped) == 8);
static_assert(__builtin_offsetof(am_findings, entries) == 16);
static_assert(sizeof(am_findings) == 81936);

// What Python tells of an access site.
struct am_access_site {
  unsigned element;  // alignment an access must have: less is an error
  unsigned align;  // less than this is a warning
  unsigned use;  // am_use
  unsigned region;  // the buffer it goes through, or kUnknownRegion
};
static_assert(__builtin_offsetof(am_access_site, element) == 0);
static_assert(__builtin_offsetof(am_access_site, align) == 4);
static_assert(__builtin_offsetof(am_access_site, use) == 8);
static_assert(__builtin_offsetof(am_access_site, region) == 12);
static_assert(sizeof(am_access_site) == 16);

// Addresses from `low` up to `high`.
struct am_range {
  char* low;
  char* high;
};
static_assert(__builtin_offsetof(am_range, low) == 0);
static_assert(__builtin_offsetof(am_range, high) == 8);
static_assert(sizeof(am_range) == 16);

// A constant of the program, as instrumented code names it.
struct am_table {
  char* low;
  unsigned long size;
};
static_assert(__builtin_offsetof(am_table, low) == 0);
static_assert(__builtin_offsetof(am_table, size) == 8);
static_assert(sizeof(am_table) == 16);

// Everything that one worker of a checked launch knows. Python allocates them, one behind the
// other, and reads the findings.
struct am_checked_launch {
  am_checks checks;
  unsigned simd_ordered[2][32];
  unsigned simd_executed[32];
  const unsigned* suspends;  // by site number: the word given to am_suspend
  const am_access_site* sites;
  unsigned* group_starts;  // epoch at the start of each threadgroup
  unsigned long group;  // number of the one that runs
  char* sink;  // where wrong accesses go: as large as the largest
  am_range own[2];  // frames and stack of the threads: addresses that are fine
  unsigned has_fences;  // 1: what atomics publish is kept (publish.h)
  unsigned matrix_site;  // site of the first load or store of a matrix
  unsigned group_threads;  // of the threadgroup that runs
  unsigned has_matrices;  // 1: the threadgroup has loaded or stored one
  unsigned matrices[1024];  // a thread's loads and stores, hashed
  unsigned last_matrix[1024];  // the last of them
  unsigned returned[1024];  // epoch of the threadgroup: by `return`
  unsigned diverged;  // epoch of a threadgroup at different barriers
  unsigned has_shuffles;  // 1: some thread is about to read another lane
  unsigned shuffles[1024];  // the lane that is read from, + 1
  unsigned first_number;  // site + 1 where the first NaN or infinity was born
  unsigned doubt[1024];  // site + 1 of a read of nothing whose value is picked later
  am_finding pending;  // a write over another thread's, judged when the new value is there
  char* pending_address;
  unsigned pending_size;
  char pending_value[64];
  unsigned is_screening;  // 1: over at the end of a threadgroup with findings
  am_findings findings;
};
static_assert(__builtin_offsetof(am_checked_launch, checks) == 0);
static_assert(__builtin_offsetof(am_checked_launch, simd_ordered) == 44448);
static_assert(__builtin_offsetof(am_checked_launch, simd_executed) == 44704);
static_assert(__builtin_offsetof(am_checked_launch, suspends) == 44832);
static_assert(__builtin_offsetof(am_checked_launch, sites) == 44840);
static_assert(__builtin_offsetof(am_checked_launch, group_starts) == 44848);
static_assert(__builtin_offsetof(am_checked_launch, group) == 44856);
static_assert(__builtin_offsetof(am_checked_launch, sink) == 44864);
static_assert(__builtin_offsetof(am_checked_launch, own) == 44872);
static_assert(__builtin_offsetof(am_checked_launch, has_fences) == 44904);
static_assert(__builtin_offsetof(am_checked_launch, matrix_site) == 44908);
static_assert(__builtin_offsetof(am_checked_launch, group_threads) == 44912);
static_assert(__builtin_offsetof(am_checked_launch, has_matrices) == 44916);
static_assert(__builtin_offsetof(am_checked_launch, matrices) == 44920);
static_assert(__builtin_offsetof(am_checked_launch, last_matrix) == 49016);
static_assert(__builtin_offsetof(am_checked_launch, returned) == 53112);
static_assert(__builtin_offsetof(am_checked_launch, diverged) == 57208);
static_assert(__builtin_offsetof(am_checked_launch, has_shuffles) == 57212);
static_assert(__builtin_offsetof(am_checked_launch, shuffles) == 57216);
static_assert(__builtin_offsetof(am_checked_launch, first_number) == 61312);
static_assert(__builtin_offsetof(am_checked_launch, doubt) == 61316);
static_assert(__builtin_offsetof(am_checked_launch, pending) == 65416);
static_assert(__builtin_offsetof(am_checked_launch, pending_address) == 65496);
static_assert(__builtin_offsetof(am_checked_launch, pending_size) == 65504);
static_assert(__builtin_offsetof(am_checked_launch, pending_value) == 65508);
static_assert(__builtin_offsetof(am_checked_launch, is_screening) == 65572);
static_assert(__builtin_offsetof(am_checked_launch, findings) == 65576);
static_assert(sizeof(am_checked_launch) == 147512);
