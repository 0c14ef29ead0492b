// What the runtime asks of the operating system, declared by hand: kernels and runtime are compiled
// without any C library headers. The types are opaque storage, large enough for Linux and macOS.
#pragma once

struct alignas(16) Mutex {
  char bytes[128];
};
struct alignas(16) Condition {
  char bytes[128];
};
struct alignas(16) SignalSet {
  char bytes[128];
};
struct alignas(16) JumpBuffer {
  char bytes[512];
};
struct SignalInfo {
  int number;
  int error;
  int code;  // above 0: the thread caused the signal itself, by what it did
#ifdef __APPLE__
  int sender[3];
#endif
  char* address;
};
struct SignalAction {
  union {
    void (*handler)(int);
    void (*with_info)(int, SignalInfo*, void*);
  };
#ifdef __APPLE__
  unsigned mask;
  int flags;
#else
  unsigned long mask[16];
  int flags;
  void (*restorer)();
#endif
};
struct SignalStack {
  char* low;
#ifdef __APPLE__
  unsigned long size;
  int flags;
#else
  int flags;
  unsigned long size;
#endif
};
struct TimeSpec {
  long seconds;
  long nanoseconds;
};
using PthreadHandle = void*;

extern "C" {
void* calloc(unsigned long, unsigned long);
void* realloc(void*, unsigned long);
int posix_memalign(void**, unsigned long, unsigned long);
void free(void*);
void* memset(void*, int, unsigned long);
void* memcpy(void*, const void*, unsigned long);
int memcmp(const void*, const void*, unsigned long);
int pthread_mutex_init(Mutex*, const void*);
int pthread_mutex_lock(Mutex*);
int pthread_mutex_trylock(Mutex*);
int pthread_mutex_unlock(Mutex*);
int pthread_cond_init(Condition*, const void*);
int pthread_cond_wait(Condition*, Mutex*);
int pthread_cond_timedwait(Condition*, Mutex*, const TimeSpec*);
int pthread_cond_signal(Condition*);
int pthread_cond_broadcast(Condition*);
int pthread_create(PthreadHandle*, const void*, void* (*)(void*), void*);
int pthread_detach(PthreadHandle);
PthreadHandle pthread_self();
int pthread_kill(PthreadHandle, int);
int pthread_sigmask(int, const SignalSet*, SignalSet*);
int sigemptyset(SignalSet*);
int sigfillset(SignalSet*);
int sigaddset(SignalSet*, int);
int sigdelset(SignalSet*, int);
int sigaction(int, const SignalAction*, SignalAction*);
int sigaltstack(const SignalStack*, SignalStack*);
int raise(int);
void* mmap(void*, unsigned long, int, int, int, long);
int mprotect(void*, unsigned long, int);
int munmap(void*, unsigned long);
int usleep(unsigned);
int clock_gettime(int, TimeSpec*);
__attribute__((returns_twice)) int _setjmp(JumpBuffer*);
[[noreturn]] void _longjmp(JumpBuffer*, int);
}

#ifdef __APPLE__
constexpr int kUnblock = 2, kSetMask = 3, kEvictSignal = 16, kMonotonic = 6;
constexpr int kWithInfo = 0x40, kOnSignalStack = 1;
constexpr int kNewMemory = 0x1042;  // private, of no file, not reserved
constexpr int kFaults[] = {11, 10, 8, 4};
#else
constexpr int kUnblock = 1, kSetMask = 2, kEvictSignal = 23, kMonotonic = 1;
constexpr int kWithInfo = 4, kOnSignalStack = 0x08000000;
constexpr int kNewMemory = 0x4022;
constexpr int kFaults[] = {11, 7, 8, 4};
#endif
// kFaults: SIGSEGV, SIGBUS, SIGFPE, SIGILL.
constexpr int kNoAccess = 0, kRead = 1, kReadAndWrite = 3;
// kEvictSignal is SIGURG: ignored by default, so that a stray one does no harm.
constexpr int kInterruptSignal = 2;

inline double now() {
  TimeSpec time;
  clock_gettime(kMonotonic, &time);
  return time.seconds + time.nanoseconds * 1e-9;
}

inline void wait_at_most(Condition& condition, Mutex& mutex, double seconds) {
  TimeSpec until;
  clock_gettime(0, &until);
  until.nanoseconds += (long)(seconds * 1e9);
  until.seconds += until.nanoseconds / 1000000000;
  until.nanoseconds %= 1000000000;
  pthread_cond_timedwait(&condition, &mutex, &until);
}

inline void unblock_signal(int signal) {
  SignalSet set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(kUnblock, &set, nullptr);
}

// Threads of ours take no signal that is meant for the program; faults are their own.
inline void block_all_signals_but(int signal) {
  SignalSet set;
  sigfillset(&set);
  if (signal) sigdelset(&set, signal);
  for (int fault : kFaults) sigdelset(&set, fault);
  pthread_sigmask(kSetMask, &set, nullptr);
}

inline bool is_function(const SignalAction& action) { return (unsigned long)action.handler > 1; }

inline bool is_alike(const SignalAction& one, const SignalAction& other) {
  return one.handler == other.handler && one.flags == other.flags &&
         memcmp(&one.mask, &other.mask, sizeof(one.mask)) == 0;
}

// Puts `handler` in place of a handler that is a function; the default action and "ignore" stay.
// `before` has what was there the last time: mostly it still is, and one call is enough.
inline bool replace_handler(int signal, void (*handler)(int), SignalAction& before) {
  SignalAction found = {}, action = before;
  action.handler = handler;
  if (is_function(before)) {
    if (sigaction(signal, &action, &found) != 0) return false;
    if (is_alike(found, before)) return true;
    sigaction(signal, &found, nullptr);
  }
  if (sigaction(signal, nullptr, &found) != 0 || !is_function(found)) return false;
  action = before = found;
  action.handler = handler;
  return sigaction(signal, &action, nullptr) == 0;
}

inline void install_handler(int signal, void (*handler)(int), SignalAction& before) {
  SignalAction action;
  memset(&action, 0, sizeof(action));
  action.handler = handler;
  sigaction(signal, &action, &before);
}

inline bool start_thread(void* (*body)(void*)) {
  PthreadHandle thread;
  if (pthread_create(&thread, nullptr, body, nullptr) != 0) return false;
  pthread_detach(thread);
  return true;
}
