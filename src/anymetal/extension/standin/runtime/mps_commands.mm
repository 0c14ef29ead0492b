// MPSCommandBuffer: a wrapper whose command buffer changes when it commits and continues.
#include "commands.h"
#include "services.h"

namespace {

AMCommandBuffer* inside(const MPSCommandBuffer* buffer) { return (AMCommandBuffer*)buffer->_am; }

}  // namespace

namespace anymetal {

AMCommandBuffer* root_of(MPSCommandBuffer* buffer) { return inside(buffer); }

void own(MPSCommandBuffer* buffer) { inside(buffer)->torchs = true; }

}  // namespace anymetal

@implementation MPSCommandBuffer
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)queue {
  return [self commandBufferWithCommandBuffer:[queue commandBuffer]];
}
+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)buffer {
  MPSCommandBuffer* wrapper = [[self alloc] init];
  wrapper->_am = (void*)[(id)buffer retain];
  return [wrapper autorelease];
}
- (id<MTLCommandBuffer>)commandBuffer {
  return inside(self);
}
- (id<MTLCommandBuffer>)rootCommandBuffer {
  return inside(self);
}
- (void)commitAndContinue {
  AMCommandBuffer* before = inside(self);
  if (before->open) {
    anymetal::refuse("open_encoder", "commitAndContinue", "an encoder is still encoding to it");
  }
  AMCommandBuffer* next = (AMCommandBuffer*)[(id)[before->queue commandBuffer] retain];
  next->torchs = before->torchs;
  anymetal::commit(before);
  [before release];
  _am = (void*)next;
}
- (id<MTLDevice>)device {
  return [inside(self) device];
}
- (id<MTLCommandQueue>)commandQueue {
  return [inside(self) commandQueue];
}
- (BOOL)retainedReferences {
  return YES;
}
- (NSString*)label {
  return [inside(self) label];
}
- (void)setLabel:(NSString*)text {
  [inside(self) setLabel:text];
}
- (MTLCommandBufferStatus)status {
  return [inside(self) status];
}
- (NSError*)error {
  return nil;
}
- (CFTimeInterval)GPUStartTime {
  return [inside(self) GPUStartTime];
}
- (CFTimeInterval)GPUEndTime {
  return [inside(self) GPUEndTime];
}
- (CFTimeInterval)kernelStartTime {
  return [inside(self) kernelStartTime];
}
- (CFTimeInterval)kernelEndTime {
  return [inside(self) kernelEndTime];
}
- (void)enqueue {
  [inside(self) enqueue];
}
- (void)commit {
  [inside(self) commit];
}
- (void)waitUntilScheduled {
  [inside(self) waitUntilScheduled];
}
- (void)waitUntilCompleted {
  [inside(self) waitUntilCompleted];
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [inside(self) addScheduledHandler:block];
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  [inside(self) addCompletedHandler:block];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [inside(self) computeCommandEncoder];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  return [inside(self) computeCommandEncoderWithDispatchType:type];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [inside(self) blitCommandEncoder];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [inside(self) encodeSignalEvent:event value:value];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [inside(self) encodeWaitForEvent:event value:value];
}
- (void)pushDebugGroup:(NSString*)text {
}
- (void)popDebugGroup {
}
- (void)dealloc {
  [inside(self) release];
  [super dealloc];
}
@end
