// What becomes of a thread that touches memory that is not there, inside a kernel or elsewhere.
//
// A fault inside a kernel ends its launch with an error. Any other goes to whoever wanted the
// signal before: their action is put back, and the fault happens again. Each launch looks whether
// the action is still ours, as a program may set one at any time.
#pragma once

#include "system.h"

constexpr unsigned kFaultCount = sizeof(kFaults) / sizeof(kFaults[0]);
constexpr unsigned kMaxRuntimes = 4;

using LeaveKernel = void (*)(int signal, const SignalInfo* info);

// One for the process: Python hands the same memory, zeros at first, to every runtime.
struct Faults {
  void (*handler)(int, SignalInfo*, void*);
  LeaveKernel leave[kMaxRuntimes];  // each jumps if its own kernel runs on this thread
  unsigned runtimes;
  SignalAction before[kFaultCount];
  bool passed_on[kFaultCount];
  Mutex mutex;
};

static Faults* faults;

inline void pass_on(int signal, const SignalInfo* info, unsigned number) {
  // Who was before us may put our handler back and raise the signal again: then it is over.
  SignalAction plain = {};
  sigaction(signal, faults->passed_on[number] ? &plain : &faults->before[number], nullptr);
  faults->passed_on[number] = true;
  if (info->code <= 0) raise(signal);  // sent by someone: it would not happen again by itself
}

static void on_fault(int signal, SignalInfo* info, void*) {
  if (info->code > 0)
    for (unsigned i = 0; i < faults->runtimes; ++i) faults->leave[i](signal, info);
  for (unsigned i = 0; i < kFaultCount; ++i)
    if (kFaults[i] == signal) pass_on(signal, info, i);
}

inline void share_faults(Faults* shared, LeaveKernel leave) {
  faults = shared;
  if (!faults->handler) {
    faults->handler = on_fault;
    pthread_mutex_init(&faults->mutex, nullptr);
  }
  if (faults->runtimes < kMaxRuntimes) faults->leave[faults->runtimes++] = leave;
}

inline void take_fault(unsigned number) {
  SignalAction current = {}, action = {};
  sigaction(kFaults[number], nullptr, &current);
  if (current.with_info == faults->handler) return;
  faults->before[number] = current;
  faults->passed_on[number] = false;
  action.with_info = faults->handler;
  action.flags = kWithInfo | kOnSignalStack;
  sigaction(kFaults[number], &action, nullptr);
}

inline void watch_faults() {
  SignalAction current = {};
  sigaction(kFaults[0], nullptr, &current);
  if (current.with_info == faults->handler) return;
  pthread_mutex_lock(&faults->mutex);
  for (unsigned i = 0; i < kFaultCount; ++i) take_fault(i);
  pthread_mutex_unlock(&faults->mutex);
}
