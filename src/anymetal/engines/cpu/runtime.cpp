// Runs a kernel over a grid: threadgroups on worker threads, the threads of one threadgroup in
// turn.
//
// Compiled once by clang without any standard library and linked in memory beside the kernels. What
// it needs of the system (threads, signals, memory) is declared in system.h.
#include <anymetal/machine.h>

#include "faults.h"
#include "layout.h"
#include "log_sink.h"
#include "scheduler.h"
#include "stack.h"
#include "system.h"

namespace {

constexpr unsigned kMaxWorkers = 64;

struct Run {
  const Launch* launch;
  unsigned groups[3];
  unsigned long total;
  unsigned long shares;  // that what nobody has taken is divided into
  unsigned long least;   // threadgroups of a share
  unsigned long next;    // atomic: first threadgroup nobody has taken
  unsigned prepared;     // atomic: workers that have begun
  int stop;              // atomic: an am_outcome other than AM_RUN_FINISHED
  unsigned long seen;    // the watchdog's: progress when it last changed, and when that was
  double seen_at;
};

// A thread that executes kernels. `run` is set while it is inside kernel code and may be jumped out
// of.
struct Worker {
  GroupState state;
  KernelStack stack;
  JumpBuffer escape;
  unsigned taken;          // atomic: some thread works with it
  Run* run;                // atomic
  unsigned busy_log;       // atomic: inside am_log, must not be jumped out of
  unsigned long finished;  // atomic: threadgroups done, the watchdog's sign of progress
  PthreadHandle thread;
};

struct Pool {
  Mutex mutex;
  Condition posted;
  Condition done;
  Mutex launches;  // held by the launch that uses the pool
  Worker* workers[kMaxWorkers];
  unsigned started;   // pool threads that exist, besides callers
  unsigned kept;      // of those, how many stay when they have nothing to do
  unsigned wanted;    // pool threads the current job wants
  unsigned joined;    // of those, how many took it
  unsigned left;      // and how many are through
  unsigned long job;  // number of the current job
  Run* run;
  bool watchdog_started;
  Mutex watching;  // held while the watchdog looks at runs
  Mutex evicting;  // held while kEvictSignal is ours
};

Pool* pool;

unsigned long divide_up(unsigned long value, unsigned long by) { return (value + by - 1) / by; }

// --- one threadgroup
// -------------------------------------------------------------------------------

void place_group(const Run& run, unsigned long number, am_group& group) {
  const Launch& launch = *run.launch;
  group.position[0] = number % run.groups[0];
  group.position[1] = number / run.groups[0] % run.groups[1];
  group.position[2] = number / run.groups[0] / run.groups[1];
  group.threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    unsigned long start = (unsigned long)group.position[axis] * launch.group_size[axis];
    unsigned long rest = launch.threads[axis] - start;
    group.size[axis] = rest < launch.group_size[axis] ? rest : launch.group_size[axis];
    group.threads *= group.size[axis];
  }
  group.simdgroups = divide_up(group.threads, AM_SIMD_WIDTH);
}

void describe_grid(const Run& run, am_group& group) {
  const Launch& launch = *run.launch;
  unsigned nominal = 1;
  for (int axis = 0; axis < 3; ++axis) {
    group.nominal_size[axis] = launch.group_size[axis];
    group.groups[axis] = run.groups[axis];
    group.grid[axis] = launch.threads[axis];
    nominal *= launch.group_size[axis];
  }
  group.nominal_simdgroups = divide_up(nominal, AM_SIMD_WIDTH);
  group.log = launch.log;
  group.listener_data = launch.listener_data;
}

bool prepare_worker(Worker& worker, Run& run) {
  const Launch& launch = *run.launch;
  unsigned long nominal =
      (unsigned long)launch.group_size[0] * launch.group_size[1] * launch.group_size[2];
  unsigned long memory = divide_up(launch.static_memory, 64) * 64;
  unsigned long offsets[AM_THREADGROUP_ARGUMENTS];
  for (unsigned i = 0; i < AM_THREADGROUP_ARGUMENTS; ++i) {
    offsets[i] = memory;
    memory += divide_up(launch.dynamic_memory[i], 64) * 64;
  }
  unsigned long frame_size =
      launch.frame_size > launch.edge_frame_size ? launch.frame_size : launch.edge_frame_size;
  if (launch.by_simdgroup) nominal = divide_up(nominal, AM_SIMD_WIDTH);
  if (!worker.state.reserve(nominal, frame_size, memory)) return false;
  am_group& group = worker.state.group;
  describe_grid(run, group);
  char* threadgroup_memory = worker.state.memory.start;
  group.threadgroup_memory = threadgroup_memory;
  for (unsigned i = 0; i < AM_THREADGROUP_ARGUMENTS; ++i)
    group.dynamic_memory[i] = launch.dynamic_memory[i] ? threadgroup_memory + offsets[i] : nullptr;
  unsigned number = __atomic_fetch_add(&run.prepared, 1u, __ATOMIC_RELAXED);
  worker.state.listener.launch_started(number, group, worker.state.frames.start,
                                       nominal * launch.frame_size);
  return true;
}

// Whether the grid's edge cuts a threadgroup: then its lanes lie otherwise than in the others.
bool is_cut(const am_group& group) {
  for (int axis = 0; axis < 3; ++axis)
    if (group.size[axis] != group.nominal_size[axis]) return true;
  return false;
}

void run_vectorised(GroupState& state, const Launch& launch) {
  bool cut = is_cut(state.group);
  void* kernel = cut ? launch.edge_kernel : launch.kernel;
  unsigned long frame_size = cut ? launch.edge_frame_size : launch.frame_size;
  if (frame_size)
    state.run_waiting_simdgroups((WaitingKernel)kernel, launch.buffers);
  else
    state.run_simdgroups((SimdgroupKernel)kernel, launch.buffers);
}

// Whether the run goes on afterwards.
bool run_group(Worker& worker, const Run& run, unsigned long number) {
  place_group(run, number, worker.state.group);
  GroupState& state = worker.state;
  state.listener.group_started(state.group, number);
  const Launch& launch = *run.launch;
  if (launch.by_simdgroup)
    run_vectorised(state, launch);
  else if (launch.frame_size)
    state.run_coroutines((Coroutine)launch.kernel, launch.buffers, launch.frame_size);
  else
    ((GroupLoop)launch.kernel)(launch.buffers, &state.group);
  return state.listener.group_finished(state.group);
}

// --- a worker's share
// ------------------------------------------------------------------------------

// Takes a share of the threadgroups that nobody has taken, `first` to `end`: large ones at first,
// whose memory a worker walks along, and small ones in the end, so that all workers are done at
// about the same time. Where a share begins, a processor has nothing prefetched: a few dozen are
// enough.
bool take_share(Run& run, unsigned long& first, unsigned long& end) {
  first = __atomic_load_n(&run.next, __ATOMIC_RELAXED);
  do {
    if (first >= run.total) return false;
    unsigned long rest = run.total - first, share = rest / run.shares;
    if (share < run.least) share = run.least;
    end = first + (share < rest ? share : rest);
  } while (!__atomic_compare_exchange_n(&run.next, &first, end, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  return true;
}

// The first reason to stop is the one that counts.
void stop(Run& run, am_outcome why) {
  int none = AM_RUN_FINISHED;
  __atomic_compare_exchange_n(&run.stop, &none, (int)why, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
}

void take_groups(Worker& worker, Run& run) {
  unsigned long first, end;
  while (take_share(run, first, end)) {
    for (unsigned long number = first; number < end; ++number) {
      if (__atomic_load_n(&run.stop, __ATOMIC_RELAXED)) return;
      if (!run_group(worker, run, number)) return stop(run, AM_RUN_ENOUGH);
      __atomic_store_n(&worker.finished, worker.finished + 1, __ATOMIC_RELAXED);
    }
  }
}

// Kernels may store past the caches (passes/simdgroup/streaming.py): others see it from here on.
void finish_stores() {
#ifdef __x86_64__
  __builtin_ia32_sfence();
#endif
}

// Works on the launch until it is done or stopped; a stop may jump out of the kernel.
__attribute__((noinline)) void work(Worker& worker, Run& run) {
  if (!prepare_worker(worker, run)) {
    stop(run, AM_RUN_NO_MEMORY);
    return;
  }
  if (_setjmp(&worker.escape) == 0) {
    __atomic_store_n(&worker.run, &run, __ATOMIC_SEQ_CST);
    take_groups(worker, run);
  }
  finish_stores();
  __atomic_store_n(&worker.run, (Run*)nullptr, __ATOMIC_SEQ_CST);
}

struct Work {
  Worker& worker;
  Run& run;
};

// The same on the worker's own stack.
void work_on(Worker& worker, Run& run) {
  if (!worker.stack.reserve()) {
    stop(run, AM_RUN_NO_MEMORY);
    return;
  }
  Work both = {worker, run};
  worker.stack.call([](void* work_of) { work(((Work*)work_of)->worker, ((Work*)work_of)->run); },
                    &both);
}

// --- stopping
// --------------------------------------------------------------------------------------

Worker* worker_of_this_thread() {
  PthreadHandle self = pthread_self();
  for (unsigned i = 0; i < kMaxWorkers; ++i) {
    Worker* worker = __atomic_load_n(&pool->workers[i], __ATOMIC_ACQUIRE);
    if (worker && __atomic_load_n(&worker->run, __ATOMIC_SEQ_CST) && worker->thread == self)
      return worker;
  }
  return nullptr;
}

// The worker of this thread if it is inside a kernel and may be jumped out of.
Worker* worker_in_kernel() {
  Worker* worker = worker_of_this_thread();
  return worker && !__atomic_load_n(&worker->busy_log, __ATOMIC_SEQ_CST) ? worker : nullptr;
}

[[noreturn]] void jump_out(Worker* worker, int signal) {
  __atomic_store_n(&worker->run, (Run*)nullptr, __ATOMIC_SEQ_CST);
  unblock_signal(signal);
  _longjmp(&worker->escape, 1);
}

void leave_kernel(int signal) {
  Worker* worker = worker_in_kernel();
  if (worker && __atomic_load_n(&worker->run->stop, __ATOMIC_SEQ_CST)) jump_out(worker, signal);
}

// How a run ends whose kernel touched an address that it may not touch.
am_outcome end_at(const Worker& worker, const char* address) {
  if (worker.stack.has_overflowed_at(address)) return AM_RUN_STACK_OVERFLOW;
  return worker.state.memory.has_fence_at(address) ? AM_RUN_BESIDE_MEMORY : AM_RUN_FAULTED;
}

void leave_faulting_kernel(int signal, const SignalInfo* info) {
  Worker* worker = worker_in_kernel();
  if (!worker) return;
  stop(*worker->run, end_at(*worker, info->address));
  jump_out(worker, signal);
}

SignalAction action_before;
Run* interruptible;  // atomic: the launch that Ctrl-C stops

// Ctrl-C on the thread that launched: Python's own handler notes it, and the kernel is left at
// once.
void on_interrupt(int signal) {
  action_before.handler(signal);
  Run* run = __atomic_load_n(&interruptible, __ATOMIC_SEQ_CST);
  if (!run) return;
  stop(*run, AM_RUN_INTERRUPTED);
  leave_kernel(signal);
}

bool any_worker_in(const Run* run) {
  for (unsigned i = 0; i < kMaxWorkers; ++i) {
    Worker* worker = __atomic_load_n(&pool->workers[i], __ATOMIC_ACQUIRE);
    if (worker && __atomic_load_n(&worker->run, __ATOMIC_SEQ_CST) == run) return true;
  }
  return false;
}

// Sends every thread that is still inside the kernel out of it, until none is left.
void evict(Run* run) {
  pthread_mutex_lock(&pool->evicting);
  SignalAction before;
  install_handler(kEvictSignal, leave_kernel, before);
  while (any_worker_in(run)) {
    for (unsigned i = 0; i < kMaxWorkers; ++i) {
      Worker* worker = __atomic_load_n(&pool->workers[i], __ATOMIC_ACQUIRE);
      if (worker && __atomic_load_n(&worker->run, __ATOMIC_SEQ_CST) == run)
        pthread_kill(worker->thread, kEvictSignal);
    }
    usleep(1000);
  }
  sigaction(kEvictSignal, &before, nullptr);
  pthread_mutex_unlock(&pool->evicting);
}

constexpr unsigned kWatchInterval = 50 * 1000;  // microseconds
constexpr double kStandstill = 0.2;             // seconds

void add_workers(Run* run);

// Changes whenever a worker of the run has finished a threadgroup.
unsigned long progress_of(const Run* run) {
  unsigned long finished = 0;
  for (unsigned i = 0; i < kMaxWorkers; ++i) {
    Worker* worker = __atomic_load_n(&pool->workers[i], __ATOMIC_ACQUIRE);
    if (worker && __atomic_load_n(&worker->run, __ATOMIC_SEQ_CST) == run)
      finished += __atomic_load_n(&worker->finished, __ATOMIC_RELAXED);
  }
  return finished;
}

// Stops the run if it has finished no threadgroup for longer than its limit. Before that, its
// workers may be waiting for a threadgroup that nobody has taken: then others take the rest.
void look_after(Run* run) {
  unsigned long finished = progress_of(run);
  double limit = run->launch->time_limit, time = now();
  if (finished != run->seen || run->seen_at == 0) {
    run->seen = finished;
    run->seen_at = time;
  } else if (limit > 0 && time - run->seen_at > limit) {
    stop(*run, AM_RUN_TIMED_OUT);
  } else if (time - run->seen_at > kStandstill) {
    add_workers(run);
  }
  if (__atomic_load_n(&run->stop, __ATOMIC_SEQ_CST)) evict(run);
}

// A launch ends by passing through `watching`, so a run seen under it stays alive.
void* watchdog_main(void*) {
  block_all_signals_but(0);
  for (;;) {
    usleep(kWatchInterval);
    pthread_mutex_lock(&pool->watching);
    for (unsigned i = 0; i < kMaxWorkers; ++i) {
      Worker* worker = __atomic_load_n(&pool->workers[i], __ATOMIC_ACQUIRE);
      Run* run = worker ? __atomic_load_n(&worker->run, __ATOMIC_SEQ_CST) : nullptr;
      if (run) look_after(run);
    }
    pthread_mutex_unlock(&pool->watching);
  }
}

// --- the pool
// --------------------------------------------------------------------------------------

// Workers are never freed, so that whoever looks through them finds them alive.
Worker* register_worker() {
  for (unsigned i = 0; i < kMaxWorkers; ++i) {
    Worker* worker = __atomic_load_n(&pool->workers[i], __ATOMIC_ACQUIRE);
    if (!worker) {
      Worker* fresh = (Worker*)calloc(1, sizeof(Worker));
      if (!fresh) return nullptr;
      if (__atomic_compare_exchange_n(&pool->workers[i], &worker, fresh, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST))
        worker = fresh;
      else
        free(fresh);
    }
    if (__atomic_exchange_n(&worker->taken, 1u, __ATOMIC_SEQ_CST)) continue;
    worker->thread = pthread_self();
    return worker;
  }
  return nullptr;
}

void unregister(Worker* worker) {
  worker->state.release();
  worker->stack.release();
  __atomic_store_n(&worker->taken, 0u, __ATOMIC_SEQ_CST);
}

void* worker_main(void*) {
  block_all_signals_but(kEvictSignal);
  Worker* worker = register_worker();
  unsigned long done = 0;
  pthread_mutex_lock(&pool->mutex);
  while (worker) {
    if (pool->job == done || pool->joined >= pool->wanted) {
      if (pool->started > pool->kept) break;  // one of those that a standstill needed
      pthread_cond_wait(&pool->posted, &pool->mutex);
      continue;
    }
    done = pool->job;
    ++pool->joined;
    Run* run = pool->run;
    pthread_mutex_unlock(&pool->mutex);
    work_on(*worker, *run);
    pthread_mutex_lock(&pool->mutex);
    if (++pool->left == pool->joined) pthread_cond_signal(&pool->done);
  }
  --pool->started;
  pthread_mutex_unlock(&pool->mutex);
  if (worker) unregister(worker);
  return nullptr;
}

constexpr unsigned kMaxThreads = kMaxWorkers - 8;  // of the pool; the rest is for callers

void start_threads(unsigned count) {
  while (pool->started < count && pool->started < kMaxThreads) {
    if (!start_thread(worker_main)) return;
    ++pool->started;
  }
}

void post(Run& run, unsigned helpers) {
  pthread_mutex_lock(&pool->mutex);
  if (helpers > pool->kept) pool->kept = helpers < kMaxThreads ? helpers : kMaxThreads;
  start_threads(helpers);
  pool->run = &run;
  pool->wanted = helpers;
  pool->joined = pool->left = 0;
  ++pool->job;
  if (helpers) pthread_cond_broadcast(&pool->posted);
  pthread_mutex_unlock(&pool->mutex);
}

// A thread for each threadgroup that nobody has taken. A launch with one worker keeps to it.
void add_workers(Run* run) {
  pthread_mutex_lock(&pool->mutex);
  unsigned long next = __atomic_load_n(&run->next, __ATOMIC_RELAXED);
  bool may_grow = Listener::kMayGrow && run->launch->workers > 1;
  if (pool->run == run && may_grow && next < run->total) {
    unsigned long wanted = pool->joined + run->total - next;
    pool->wanted = wanted < kMaxThreads ? wanted : kMaxThreads;
    start_threads(pool->wanted);
    pthread_cond_broadcast(&pool->posted);
  }
  pthread_mutex_unlock(&pool->mutex);
}

void collect(Run& run) {
  pthread_mutex_lock(&pool->mutex);
  pool->run = nullptr;
  pool->wanted = 0;  // nobody joins any more
  while (pool->left < pool->joined) {
    // Woken now and then: Ctrl-C sets `stop` but cannot wake this wait.
    wait_at_most(pool->done, pool->mutex, 0.02);
    if (__atomic_load_n(&run.stop, __ATOMIC_SEQ_CST) == AM_RUN_FINISHED) continue;
    pthread_mutex_unlock(&pool->mutex);
    evict(&run);
    pthread_mutex_lock(&pool->mutex);
  }
  pthread_mutex_unlock(&pool->mutex);
}

// --- a launch
// --------------------------------------------------------------------------------------

void start_watchdog() {
  pthread_mutex_lock(&pool->mutex);
  if (!pool->watchdog_started) pool->watchdog_started = start_thread(watchdog_main);
  pthread_mutex_unlock(&pool->mutex);
}

void measure(Run& run, const Launch& launch, unsigned workers) {
  run.total = 1;
  for (int axis = 0; axis < 3; ++axis) {
    run.groups[axis] = divide_up(launch.threads[axis], launch.group_size[axis]);
    run.total *= run.groups[axis];
  }
  // As few as may all wait for each other, a worker each, are taken one by one.
  run.shares = run.total <= kMaxWorkers ? kMaxWorkers : workers * 4ul;
  run.least = 1 + run.total / (workers * 64ul);
}

unsigned useful_workers(const Launch& launch, const Run& run) {
  unsigned long threads = 1;
  for (int axis = 0; axis < 3; ++axis) threads *= launch.threads[axis];
  if (threads < Listener::kWorthSharing || run.total < 2) return 1;
  return run.total < launch.workers ? (unsigned)run.total : launch.workers;
}

Worker* idle_caller;  // atomic: a worker structure kept for the next launch from outside the pool

Worker* borrow_worker() {
  Worker* worker = __atomic_exchange_n(&idle_caller, (Worker*)nullptr, __ATOMIC_SEQ_CST);
  if (!worker) worker = register_worker();
  if (worker) worker->thread = pthread_self();
  return worker;
}

void give_back(Worker* worker) {
  Worker* expected = nullptr;
  if (!__atomic_compare_exchange_n(&idle_caller, &expected, worker, false, __ATOMIC_SEQ_CST,
                                   __ATOMIC_SEQ_CST))
    unregister(worker);
}

// `workers` is 0 where another launch has the pool.
void run_shared(Worker& worker, Run& run, unsigned workers) {
  bool shared = workers && run.total > 1;
  if (shared) post(run, workers - 1);
  work_on(worker, run);
  if (shared) collect(run);
}

}  // namespace

extern "C" {

// After a fork the pool's threads are gone: the child starts a pool of its own.
void am_runtime_reset() {
  pool = (Pool*)calloc(1, sizeof(Pool));
  idle_caller = nullptr;
  pthread_mutex_init(&pool->mutex, nullptr);
  pthread_mutex_init(&pool->launches, nullptr);
  pthread_mutex_init(&pool->watching, nullptr);
  pthread_mutex_init(&pool->evicting, nullptr);
  pthread_cond_init(&pool->posted, nullptr);
  pthread_cond_init(&pool->done, nullptr);
  if (faults) pthread_mutex_init(&faults->mutex, nullptr);
}

void am_share_faults(void* shared) { share_faults((Faults*)shared, leave_faulting_kernel); }

unsigned long am_faults_size() { return sizeof(Faults); }

unsigned long am_frame_size(void* coroutine) {
  unsigned long size = 0;
  ((Coroutine)coroutine)(nullptr, nullptr, nullptr, &size);
  return divide_up(size, 64) * 64;
}

// x86 without AVX512-BF16 calls this for every rounding to bfloat; to nearest, ties to even.
__bf16 __truncsfbf2(float value) {
  unsigned bits = __builtin_bit_cast(unsigned, value);
  bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return __builtin_bit_cast(__bf16, (unsigned short)(nan ? bits >> 16 | 0x40u : rounded));
}

int am_run(const Launch* launch) {
  Run run = {};
  run.launch = launch;
  measure(run, *launch, launch->workers);
  Worker* worker = borrow_worker();
  if (!worker) return AM_RUN_NO_MEMORY;
  // One launch at a time uses the pool; others run on their own thread beside it.
  bool owner = pthread_mutex_trylock(&pool->launches) == 0;
  unsigned workers = owner ? useful_workers(*launch, run) : 0;
  if (!pool->watchdog_started) start_watchdog();
  watch_faults();
  bool guarded =
      launch->on_main_thread && replace_handler(kInterruptSignal, on_interrupt, action_before);
  if (guarded) __atomic_store_n(&interruptible, &run, __ATOMIC_SEQ_CST);
  run_shared(*worker, run, workers);
  pthread_mutex_lock(&pool->watching);
  pthread_mutex_unlock(&pool->watching);
  if (guarded) {
    __atomic_store_n(&interruptible, (Run*)nullptr, __ATOMIC_SEQ_CST);
    sigaction(kInterruptSignal, &action_before, nullptr);
  }
  if (owner) pthread_mutex_unlock(&pool->launches);
  give_back(worker);
  return run.stop;
}

void am_free_log(LogSink* sink) {
  free(sink->data);
  sink->data = nullptr;
}

void am_log(am_group* group, unsigned x, unsigned y, unsigned z, int level, const char* subsystem,
            const char* category, const char* format, const am_log_value* values, unsigned count) {
  Worker* worker = worker_of_this_thread();
  if (worker) __atomic_store_n(&worker->busy_log, 1u, __ATOMIC_SEQ_CST);
  LogRecord record = {subsystem, category, format, level, count, {x, y, z}};
  append_log(*(LogSink*)group->log, record, values);
  if (worker) __atomic_store_n(&worker->busy_log, 0u, __ATOMIC_SEQ_CST);
}
}
