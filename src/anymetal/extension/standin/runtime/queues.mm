// Serial queues: a lock and the thread that has it. Blocks run where they are called.
#include "queues.h"

#include <Block.h>
#import <Foundation/Foundation.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "services.h"

struct dispatch_queue_s {
  std::mutex lock;
  std::atomic<std::thread::id> owner{};
  const char* label;
};

struct dispatch_semaphore_s {
  std::mutex lock;
  std::condition_variable raised;
  long value;
};

namespace {

dispatch_queue_t stream_queue = nullptr;

struct Turn {
  dispatch_queue_t queue;
  explicit Turn(dispatch_queue_t which) : queue(which) {
    queue->lock.lock();
    queue->owner = std::this_thread::get_id();
  }
  ~Turn() {
    queue->owner = std::thread::id();
    queue->lock.unlock();
  }
};

}  // namespace

namespace anymetal {

bool is_on(dispatch_queue_t queue) { return queue->owner == std::this_thread::get_id(); }

void set_stream_queue(dispatch_queue_t queue) { stream_queue = queue; }

void run_on(dispatch_queue_t queue, dispatch_block_t block) {
  if (is_on(queue)) {
    refuse("stream_queue", "dispatch_sync",
           "a block is handed to the queue that this thread is already on: it waits for itself");
  }
  Turn turn(queue);
  block();
}

}  // namespace anymetal

extern "C" {

dispatch_queue_t dispatch_queue_create(const char* label, dispatch_queue_attr_t) {
  auto* queue = new dispatch_queue_s;
  queue->label = label;
  return queue;
}

dispatch_queue_t dispatch_get_main_queue(void) {
  static dispatch_queue_t queue = dispatch_queue_create("main", nullptr);
  return queue;
}

// Queues are few, and live as long as the process.
void dispatch_release(dispatch_queue_t) {}
void dispatch_retain(dispatch_queue_t) {}

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  try {
    anymetal::run_on(queue, block);
  } catch (...) {
    // libdispatch would end the process here; what is thrown says what happened.
    anymetal::warn("stream_queue", "error", "dispatch_sync",
                   "a C++ exception leaves a block that dispatch_sync runs, which ends the process "
                   "on a Mac");
    throw;
  }
}

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block) {
  if (queue == stream_queue) {
    anymetal::warn("stream_queue", "error", "dispatch_async",
                   "a block is put on the stream's queue and runs later than what follows it: "
                   "tensors it uses may be gone by then");
  }
  auto kept = (dispatch_block_t)Block_copy(block);
  std::thread([queue, kept] {
    Turn turn(queue);
    @autoreleasepool {
      kept();
    }
    Block_release(kept);
  }).detach();
}

void dispatch_once(dispatch_once_t* flag, dispatch_block_t block) {
  static std::recursive_mutex lock;
  std::lock_guard<std::recursive_mutex> turn(lock);
  if (*flag) return;
  block();
  *flag = 1;
}

dispatch_data_t dispatch_data_create(const void* bytes, size_t length, dispatch_queue_t,
                                     dispatch_block_t destructor) {
  NSData* data = [[NSData dataWithBytes:bytes length:length] retain];
  if (destructor) destructor();
  return data;
}

dispatch_semaphore_t dispatch_semaphore_create(long value) {
  auto* semaphore = new dispatch_semaphore_s;
  semaphore->value = value;
  return semaphore;
}

long dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t timeout) {
  std::unique_lock<std::mutex> lock(semaphore->lock);
  const auto there = [&] { return semaphore->value > 0; };
  if (timeout == DISPATCH_TIME_NOW) {
    if (!there()) return 1;
  } else {
    semaphore->raised.wait(lock, there);
  }
  --semaphore->value;
  return 0;
}

long dispatch_semaphore_signal(dispatch_semaphore_t semaphore) {
  std::lock_guard<std::mutex> lock(semaphore->lock);
  ++semaphore->value;
  semaphore->raised.notify_one();
  return 0;
}

}  // extern "C"
