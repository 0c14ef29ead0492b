// The stack that kernels run on: ours, whatever stack the calling thread has.
//
// From the lowest address: memory that cannot be touched, the kernel's stack, the stack of signal
// handlers. A kernel that needs more than there is runs into the first part and is stopped there
// (faults.h). No frame is larger than that part: lowering.py limits what a thread declares.
#pragma once

#include "layout.h"
#include "system.h"

constexpr unsigned long kGuardBytes = AM_STACK_BYTES;
constexpr unsigned long kSignalStackBytes = 64ul << 10;

struct KernelStack {
  char* low;

  bool reserve() {
    if (low) return true;
    void* place = mmap(nullptr, kAll, kReadAndWrite, kNewMemory, -1, 0);
    if (place == (void*)-1) return false;
    mprotect(place, kGuardBytes, kNoAccess);
    low = (char*)place;
    return true;
  }

  void release() {
    if (low) munmap(low, kAll);
    low = nullptr;
  }

  bool has_overflowed_at(const char* address) const {
    return address >= low && address < low + kGuardBytes;
  }

  // Calls a function on this stack; faults in it are handled on the stack for signals.
  void call(void (*function)(void*), void* argument) const {
    SignalStack own = {}, before = {};
    own.low = low + kGuardBytes + AM_STACK_BYTES;
    own.size = kSignalStackBytes;
    sigaltstack(&own, &before);
    switch_to(low + kGuardBytes + AM_STACK_BYTES, function, argument);
    sigaltstack(&before, nullptr);
  }

 private:
  static constexpr unsigned long kAll = kGuardBytes + AM_STACK_BYTES + kSignalStackBytes;

  // A register that every function leaves as it was remembers the old stack. Not inlined: a call
  // tells the compiler what else may change.
  __attribute__((noinline)) static void switch_to(char* top, void (*function)(void*),
                                                  void* argument) {
#if defined(__x86_64__)
    asm volatile(
        "movq %%rsp, %%rbx\n\t"
        "movq %[top], %%rsp\n\t"
        "callq *%[function]\n\t"
        "movq %%rbx, %%rsp"
        : "+D"(argument)
        : [top] "r"(top), [function] "r"(function)
        : "rbx", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
#elif defined(__aarch64__)
    register void* first asm("x0") = argument;
    asm volatile(
        "mov x19, sp\n\t"
        "mov sp, %[top]\n\t"
        "blr %[function]\n\t"
        "mov sp, x19"
        : "+r"(first)
        : [top] "r"(top), [function] "r"(function)
        : "x19", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
          "x14", "x15", "x16", "x17", "x30", "memory", "cc");
#else
    function(argument);
#endif
  }
};
