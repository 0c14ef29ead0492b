// Made by `python tools/headers.py` from machine/layout.py: change that.
// clang-format off
#pragma once

constexpr unsigned AM_SIMD_WIDTH = 32u;
constexpr unsigned AM_SLOT_BYTES = 64u;
constexpr unsigned AM_THREADGROUP_ARGUMENTS = 31u;
constexpr unsigned AM_MAX_THREADS = 1024u;
constexpr unsigned AM_WAIT_BITS = 4u;
constexpr unsigned AM_WAIT_MASK = 15u;
constexpr unsigned AM_SCOPE_SHIFT = 12u;

// What a thread waits for when it suspends. Kept in the low bits of `am_thread::site`.
enum am_wait : unsigned {
  AM_FINISHED = 0,
  AM_THREADGROUP_BARRIER = 1,  // all live threads of the threadgroup
  AM_SIMDGROUP_BARRIER = 2,  // the live lanes standing at this site
  AM_COLLECTIVE = 3,  // the live lanes standing at this site
  AM_LOOP_END = 4,  // likewise; inserted where a kernel becomes a coroutine
};

// The memory that a barrier orders: behind the am_wait in the word given to am_suspend.
enum am_memory_flags : unsigned {
  AM_ORDERS_DEVICE = 1,
  AM_ORDERS_THREADGROUP = 2,
};

// Bits of am_description::flags: what kind of parameter it is.
enum am_description_flags : unsigned {
  AM_IS_POINTER = 1,
  AM_IS_REFERENCE = 2,
  AM_IS_CONST = 4,
};

// What the bits of an argument of a log message mean.
enum am_log_kind : unsigned {
  AM_LOG_SIGNED = 0,
  AM_LOG_UNSIGNED = 1,
  AM_LOG_FLOAT = 2,  // binary floating point of `size` bytes: half or float
  AM_LOG_BFLOAT = 3,  // upper half of a float
  AM_LOG_POINTER = 4,
};

// One threadgroup.
struct am_group {
  unsigned position[3];  // threadgroup_position_in_grid
  unsigned size[3];  // threads_per_threadgroup: smaller at the edges of the grid
  unsigned nominal_size[3];  // dispatch_threads_per_threadgroup
  unsigned groups[3];  // threadgroups_per_grid
  unsigned grid[3];  // threads_per_grid
  unsigned threads;  // size[0] * size[1] * size[2]
  unsigned simdgroups;  // threads / 32, rounded up
  unsigned nominal_simdgroups;  // dispatch_simdgroups_per_threadgroup
  char* threadgroup_memory;  // the arrays declared in the kernel's body
  char* dynamic_memory[31];  // [[threadgroup(n)]] parameters
  void* log;  // the runtime's: where os_log messages go
  void* listener_data;  // the runtime's: what instrumented code reports to
};
static_assert(__builtin_offsetof(am_group, position) == 0);
static_assert(__builtin_offsetof(am_group, size) == 12);
static_assert(__builtin_offsetof(am_group, nominal_size) == 24);
static_assert(__builtin_offsetof(am_group, groups) == 36);
static_assert(__builtin_offsetof(am_group, grid) == 48);
static_assert(__builtin_offsetof(am_group, threads) == 60);
static_assert(__builtin_offsetof(am_group, simdgroups) == 64);
static_assert(__builtin_offsetof(am_group, nominal_simdgroups) == 68);
static_assert(__builtin_offsetof(am_group, threadgroup_memory) == 72);
static_assert(__builtin_offsetof(am_group, dynamic_memory) == 80);
static_assert(__builtin_offsetof(am_group, log) == 328);
static_assert(__builtin_offsetof(am_group, listener_data) == 336);
static_assert(sizeof(am_group) == 344);

// One simdgroup of a threadgroup.
struct am_simdgroup {
  unsigned active;  // bit per lane: those in the collective just completed
  unsigned leader;  // lowest active lane: resumed first, computes for all
  unsigned index;  // simdgroup_index_in_threadgroup
  unsigned threads;  // live at the start: 32, or fewer in the last simdgroup
  alignas(64) char inputs[4096];  // one value a lane: see am_lanes_in
  alignas(64) char outputs[2048];  // likewise, written by the leader
};
static_assert(__builtin_offsetof(am_simdgroup, active) == 0);
static_assert(__builtin_offsetof(am_simdgroup, leader) == 4);
static_assert(__builtin_offsetof(am_simdgroup, index) == 8);
static_assert(__builtin_offsetof(am_simdgroup, threads) == 12);
static_assert(__builtin_offsetof(am_simdgroup, inputs) == 64);
static_assert(__builtin_offsetof(am_simdgroup, outputs) == 4160);
static_assert(sizeof(am_simdgroup) == 6208);

// One thread.
struct am_thread {
  unsigned site;  // where it stands: site number << AM_WAIT_BITS | am_wait
  unsigned lane;  // thread_index_in_simdgroup
  unsigned position[3];  // thread_position_in_threadgroup
  unsigned index;  // thread_index_in_threadgroup
  am_simdgroup* simd;  // null in kernels without barriers and collectives
  am_group* group;
};
static_assert(__builtin_offsetof(am_thread, site) == 0);
static_assert(__builtin_offsetof(am_thread, lane) == 4);
static_assert(__builtin_offsetof(am_thread, position) == 8);
static_assert(__builtin_offsetof(am_thread, index) == 20);
static_assert(__builtin_offsetof(am_thread, simd) == 24);
static_assert(__builtin_offsetof(am_thread, group) == 32);
static_assert(sizeof(am_thread) == 40);

// One argument of a log message: `count` elements of `size` bytes each, packed in `bits`.
struct am_log_value {
  unsigned kind;  // am_log_kind
  unsigned short size;
  unsigned short count;  // 1 for a scalar, 2 to 4 for a vector
  unsigned long bits[4];
};
static_assert(__builtin_offsetof(am_log_value, kind) == 0);
static_assert(__builtin_offsetof(am_log_value, size) == 4);
static_assert(__builtin_offsetof(am_log_value, count) == 6);
static_assert(__builtin_offsetof(am_log_value, bits) == 8);
static_assert(sizeof(am_log_value) == 40);
