// Command buffers run their steps in order; a step that waits for an event stops them.
#include "commands.h"

#include <Block.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "encoders.h"
#include "objects.h"
#include "operators.h"
#include "order.h"
#include "queues.h"
#include "services.h"

using anymetal::order;
using anymetal::refuse;
using anymetal::services;
using anymetal::warn;

namespace {

constexpr size_t kKept = 64;

std::recursive_mutex blocked_mutex;
auto& blocked = *new std::vector<AMCommandBuffer*>;  // committed, and waiting for an event

double seconds_now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

void retry_blocked() {
  std::lock_guard<std::recursive_mutex> lock(blocked_mutex);
  std::vector<AMCommandBuffer*> waiting;
  waiting.swap(blocked);
  for (AMCommandBuffer* buffer : waiting) {
    if (![buffer pump]) {
      blocked.push_back(buffer);
    } else {
      [buffer release];
    }
  }
}

void host_wait(const char* call) {
  warn("host_wait", "warning", call,
       "the host waits for the GPU inside of an operator, and nothing is encoded meanwhile");
}

}  // namespace

namespace anymetal {

void keep_for_a_while(id encoder) {
  static std::mutex mutex;
  static auto& kept = *new std::deque<id>;
  std::lock_guard<std::mutex> lock(mutex);
  kept.push_back([encoder retain]);
  if (kept.size() <= kKept) return;
  [kept.front() release];
  kept.pop_front();
}

// Handlers run when all steps have.
void finish(AMCommandBuffer* buffer) {
  buffer->ended = seconds_now();
  [buffer retain];
  submit([buffer] {
    @autoreleasepool {
      buffer->completed = true;
      for (auto* list : {&buffer->scheduled, &buffer->handlers}) {
        for (auto handler : *list) {
          handler(buffer);
          Block_release(handler);
        }
        list->clear();
      }
      [buffer release];
    }
  });
}

void commit(AMCommandBuffer* buffer) {
  buffer->committed = true;
  order.follow([buffer timeline], buffer -> queue);
  order.commit([buffer timeline], buffer -> queue);
  std::lock_guard<std::recursive_mutex> lock(blocked_mutex);
  if (![buffer pump]) blocked.push_back([buffer retain]);
}

void wait_for(AMCommandBuffer* buffer) {
  if (!buffer->steps.empty()) {
    refuse("unordered_buffers", "waitUntilCompleted",
           "the command buffer waits for an event that nothing committed signals: it never ends");
  }
  order.host_waits_for([buffer timeline]);
  std::string answer;
  services.synchronize(&answer);
  if (!answer.empty()) fail(answer);
}

}  // namespace anymetal

@implementation AMEvent
- (NSString*)label {
  return name;
}
- (void)setLabel:(NSString*)text {
  name = [text retain];
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (uint64_t)signaledValue {
  return reached;
}
- (void)setSignaledValue:(uint64_t)value {
  reached = value;
  promised = std::max(promised, value);
  retry_blocked();
}
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds {
  host_wait("waitUntilSignaledValue");
  std::string answer;
  services.synchronize(&answer);
  return reached >= value;
}
@end

@implementation AMCommandQueue
- (id)init {
  timeline = anymetal::order.new_timeline();
  return self;
}
- (NSString*)label {
  return name;
}
- (void)setLabel:(NSString*)text {
  name = [text retain];
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (id<MTLCommandBuffer>)commandBuffer {
  AMCommandBuffer* buffer = [[AMCommandBuffer alloc] init];
  buffer->queue = [self retain];
  return [buffer autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [self commandBuffer];
}
@end

@implementation AMCommandBuffer
- (void)add:(anymetal::Step)step {
  steps.push_back(std::move(step));
  if (torchs) [self pump];
}
- (bool)pump {
  if (started == 0) started = seconds_now();
  while (!steps.empty()) {
    anymetal::Step& next = steps.front();
    if (next.event && !next.signals && next.event->promised < next.value) return false;
    anymetal::Step step = std::move(next);
    steps.pop_front();
    if (step.signals) step.event->promised = std::max(step.event->promised, step.value);
    if (step.work) anymetal::submit(std::move(step.work));
    [step.event release];
    if (step.signals) retry_blocked();
  }
  if (committed) anymetal::finish(self);
  return true;
}
- (int)timeline {
  return torchs ? anymetal::kStream : queue->timeline;
}
- (void)checkEncodable:(const char*)call {
  if (committed) refuse("stale_encoder", call, "the command buffer has been committed");
  if (open == nil) return;
  refuse("open_encoder", call,
         open_is_torchs ? "torch's own encoder is still encoding to this command buffer"
                        : "another encoder is still encoding to this command buffer");
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (id<MTLCommandQueue>)commandQueue {
  return queue;
}
- (BOOL)retainedReferences {
  return YES;
}
- (NSString*)label {
  return name;
}
- (void)setLabel:(NSString*)text {
  name = [text retain];
}
- (MTLCommandBufferStatus)status {
  if (completed) return MTLCommandBufferStatusCompleted;
  return committed ? MTLCommandBufferStatusCommitted : MTLCommandBufferStatusNotEnqueued;
}
- (NSError*)error {
  return nil;
}
- (CFTimeInterval)GPUStartTime {
  return started;
}
- (CFTimeInterval)GPUEndTime {
  return ended;
}
- (CFTimeInterval)kernelStartTime {
  return started;
}
- (CFTimeInterval)kernelEndTime {
  return ended;
}
- (void)enqueue {
}
- (void)commit {
  if (torchs) {
    refuse("owned_by_torch", "commit", "this is the command buffer of torch's stream");
  }
  if (committed) refuse("stale_encoder", "commit", "the command buffer is committed twice");
  if (open) refuse("open_encoder", "commit", "an encoder is still encoding to it");
  anymetal::commit(self);
}
- (void)waitUntilScheduled {
}
- (void)waitUntilCompleted {
  if (torchs) {
    refuse("owned_by_torch", "waitUntilCompleted",
           "this is the command buffer of torch's stream, which commits it");
  }
  if (!committed) refuse("stale_encoder", "waitUntilCompleted", "it has not been committed");
  host_wait("waitUntilCompleted");
  anymetal::wait_for(self);
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  if (committed) refuse("stale_encoder", "addScheduledHandler", "it has been committed");
  scheduled.push_back((MTLCommandBufferHandler)Block_copy(block));
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  if (committed) refuse("stale_encoder", "addCompletedHandler", "it has been committed");
  handlers.push_back((MTLCommandBufferHandler)Block_copy(block));
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  [self checkEncodable:"computeCommandEncoder"];
  return anymetal::new_compute_encoder(self, type);
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  [self checkEncodable:"blitCommandEncoder"];
  return anymetal::new_blit_encoder(self);
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self checkEncodable:"encodeSignalEvent"];
  AMEvent* signal = (AMEvent*)[(id)event retain];
  [signal retain];
  order.signal([self timeline], (const void*)signal, value);
  const auto reach = [signal, value] {
    signal->reached = std::max(signal->reached, value);
    [signal release];
  };
  [self add:{reach, signal, value, true}];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self checkEncodable:"encodeWaitForEvent"];
  order.wait([self timeline], (const void*)event, value);
  [self add:{nullptr, (AMEvent*)[(id)event retain], value}];
}
- (void)pushDebugGroup:(NSString*)text {
}
- (void)popDebugGroup {
}
- (void)dealloc {
  [queue release];
  [name release];
  [super dealloc];
}
@end
