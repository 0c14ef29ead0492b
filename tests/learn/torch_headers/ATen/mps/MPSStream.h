// The stream as torch 2.13's ATen/mps/MPSStream.h declares it, in part.
#pragma once
#import <Metal/Metal.h>

namespace at::mps {
enum class SyncType { NONE, COMMIT, COMMIT_AND_WAIT, COMMIT_AND_CONTINUE, COMMIT_ADAPTIVE };
class MPSStream {
 public:
  dispatch_queue_t queue() const;
  id<MTLCommandBuffer> commandBuffer();
  id<MTLComputeCommandEncoder> commandEncoder();
  void endKernelCoalescing();
  void synchronize(SyncType type);
};
MPSStream *getCurrentMPSStream();
void dispatch_sync_with_rethrow(dispatch_queue_t queue, void (^block)());
}  // namespace at::mps
