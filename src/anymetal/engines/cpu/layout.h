// Made by `python tools/headers.py` from engines/cpu/layout.py: change that.
// clang-format off
#pragma once

constexpr unsigned AM_STACK_BYTES = 67108864u;

// How a run ended.
enum am_outcome : unsigned {
  AM_RUN_FINISHED = 0,
  AM_RUN_INTERRUPTED = 1,
  AM_RUN_TIMED_OUT = 2,
  AM_RUN_NO_MEMORY = 3,
  AM_RUN_FAULTED = 4,
  AM_RUN_STACK_OVERFLOW = 5,
  AM_RUN_ENOUGH = 6,  // its listener has seen what it wanted
  AM_RUN_BESIDE_MEMORY = 7,  // the kernel wrote where its threadgroup memory has ended
};

// Where os_log messages of a launch are collected until Python formats them.
struct LogSink {
  char* data;
  unsigned long size;
  unsigned long capacity;
  unsigned long dropped;  // messages beyond kLogLimit
  unsigned locked;
};
static_assert(__builtin_offsetof(LogSink, data) == 0);
static_assert(__builtin_offsetof(LogSink, size) == 8);
static_assert(__builtin_offsetof(LogSink, capacity) == 16);
static_assert(__builtin_offsetof(LogSink, dropped) == 24);
static_assert(__builtin_offsetof(LogSink, locked) == 32);
static_assert(sizeof(LogSink) == 40);

// One message in a LogSink; `count` values of type am_log_value follow it.
struct LogRecord {
  const char* subsystem;  // null for os_log_default
  const char* category;  // likewise
  const char* format;  // a literal of the kernel: lives as long as its code
  int level;  // metal::log_type, or AM_LOG_FAILED for an assert
  unsigned count;
  unsigned thread[3];  // thread_position_in_grid
};
static_assert(__builtin_offsetof(LogRecord, subsystem) == 0);
static_assert(__builtin_offsetof(LogRecord, category) == 8);
static_assert(__builtin_offsetof(LogRecord, format) == 16);
static_assert(__builtin_offsetof(LogRecord, level) == 24);
static_assert(__builtin_offsetof(LogRecord, count) == 28);
static_assert(__builtin_offsetof(LogRecord, thread) == 32);
static_assert(sizeof(LogRecord) == 48);

// One launch: what changes with each call first, then what the kernel fixes.
struct Launch {
  void* const* buffers;
  unsigned threads[3];
  unsigned group_size[3];
  unsigned workers;
  unsigned on_main_thread;  // 1: Ctrl-C is delivered to the calling thread
  double time_limit;  // seconds without a finished threadgroup; 0: none
  LogSink* log;
  void* listener_data;
  void* kernel;  // am_coroutine, am_group_main or am_thread_main
  unsigned long frame_size;  // 0: the kernel never stops
  unsigned long by_simdgroup;  // 1: the kernel runs a simdgroup at a time
  void* edge_kernel;  // by_simdgroup: for threadgroups cut by the grid's edge; may be the same
  unsigned long edge_frame_size;
  unsigned long static_memory;
  unsigned long dynamic_memory[31];
};
static_assert(__builtin_offsetof(Launch, buffers) == 0);
static_assert(__builtin_offsetof(Launch, threads) == 8);
static_assert(__builtin_offsetof(Launch, group_size) == 20);
static_assert(__builtin_offsetof(Launch, workers) == 32);
static_assert(__builtin_offsetof(Launch, on_main_thread) == 36);
static_assert(__builtin_offsetof(Launch, time_limit) == 40);
static_assert(__builtin_offsetof(Launch, log) == 48);
static_assert(__builtin_offsetof(Launch, listener_data) == 56);
static_assert(__builtin_offsetof(Launch, kernel) == 64);
static_assert(__builtin_offsetof(Launch, frame_size) == 72);
static_assert(__builtin_offsetof(Launch, by_simdgroup) == 80);
static_assert(__builtin_offsetof(Launch, edge_kernel) == 88);
static_assert(__builtin_offsetof(Launch, edge_frame_size) == 96);
static_assert(__builtin_offsetof(Launch, static_memory) == 104);
static_assert(__builtin_offsetof(Launch, dynamic_memory) == 112);
static_assert(sizeof(Launch) == 360);
