// Command buffers and what they hold until it runs.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

@class AMCommandBuffer;

@interface AMEvent : NSObject <MTLSharedEvent> {
 @public
  uint64_t reached;   // by work that has run
  uint64_t promised;  // by work that runs before anything that is submitted now
  NSString* name;
}
@end

@interface AMCommandQueue : NSObject <MTLCommandQueue> {
 @public
  int timeline;
  NSString* name;
}
@end

namespace anymetal {

// Work, and an event that it waits for first, or that it signals.
struct Step {
  std::function<void()> work;
  AMEvent* event = nil;
  uint64_t value = 0;
  bool signals = false;
};

// Encoders that have ended are kept for a while: a message to one is a finding, not a crash.
void keep_for_a_while(id encoder);

void finish(AMCommandBuffer* buffer);

// Commits and waits as the stream itself does it.
void commit(AMCommandBuffer* buffer);
void wait_for(AMCommandBuffer* buffer);
AMCommandBuffer* root_of(MPSCommandBuffer* buffer);
void own(MPSCommandBuffer* buffer);

}  // namespace anymetal

@interface AMCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  AMCommandQueue* queue;
  bool torchs;  // the stream's: its work runs as it is encoded
  bool committed, completed;
  id open;  // the encoder that is encoding; it is not counted
  bool open_is_torchs;
  std::deque<anymetal::Step> steps;
  std::vector<MTLCommandBufferHandler> scheduled, handlers;
  NSString* name;
  double started, ended;
}
- (void)add:(anymetal::Step)step;
- (bool)pump;
- (void)checkEncodable:(const char*)call;
- (int)timeline;
@end
