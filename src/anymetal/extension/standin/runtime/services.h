// What the stand-ins ask of others: the virtual device for memory, Python for kernels and reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace anymetal {

constexpr size_t kBuffers = 31;

// A pipeline as Python describes it: its limits, and what it does with its arguments.
struct PipelineFacts {
  uint64_t max_threads, width, static_memory;
  uint32_t used, written, threadgroup;  // a bit for each index
  uint64_t least_bytes[kBuffers];       // of one element of a buffer
};

// One launch: addresses, the bytes there are from each on, of them those of the tensor that the
// operator was called with, lengths of threadgroup memory, the grid.
struct LaunchRecord {
  uint64_t addresses[kBuffers], sizes[kBuffers], extents[kBuffers], lengths[kBuffers];
  uint64_t grid[3], group[3];
  const uint64_t* reachable;  // addresses and sizes of what is reached by address alone
  uint64_t reachable_count;
};

// Handles are Python's, 0 for a failure. Texts come back in a std::string, through set_text.
struct Services {
  // Of the virtual device's library.
  void* (*hold)(const void* address, size_t* bytes);
  void (*let_go)(void* block);
  int (*is_freed)(void* block);
  int (*known)(const void* address);  // 1: memory of a tensor, 2: was one, 0: neither
  const void* (*containing)(const void* address);
  void (*set_encoding)(int encoding);
  // Of Python.
  int64_t (*compile)(const char* text, size_t length, const char* macros, int fast_math,
                     int is_data, std::string* answer);
  void (*function_names)(int64_t library, std::string* answer);
  int64_t (*pipeline)(int64_t library, const char* name, const char* constants,
                      PipelineFacts* facts, std::string* answer);
  int (*launch)(int64_t pipeline, const LaunchRecord* record, std::string* answer);
  int (*submit)(uint64_t work, std::string* answer);
  void (*synchronize)(std::string* answer);
  void (*report)(const char* kind, const char* severity, const char* call, const char* operation,
                 const char* message, void* const* frames, int count, std::string* answer);
};

extern Services services;

// Runs after all that was submitted before it: now, or later where the device is asynchronous.
void submit(std::function<void()> work);

// Misuse that a Mac survives: a finding, where a check is on.
void warn(const char* kind, const char* severity, const char* call, const std::string& message);

// Misuse that ends the process on a Mac: a finding, and an error that reaches Python.
[[noreturn]] void refuse(const char* kind, const char* call, const std::string& message);

// An error that is no misuse: a kernel that failed.
[[noreturn]] void fail(const std::string& message);

}  // namespace anymetal
