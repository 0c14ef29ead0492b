// Compute and blit encoders.
#pragma once

#include "buffers.h"
#include "commands.h"
#include "libraries.h"

namespace anymetal {

id<MTLComputeCommandEncoder> new_compute_encoder(AMCommandBuffer* buffer, MTLDispatchType type);
id<MTLBlitCommandEncoder> new_blit_encoder(AMCommandBuffer* buffer);

}  // namespace anymetal

// What both have: the command buffer they encode to, and whether they still do.
@interface AMEncoder : NSObject <MTLCommandEncoder> {
 @public
  AMCommandBuffer* buffer;
  bool ended;
  NSString* name;
}
- (void)check:(const char*)call;
- (void)finish;
- (void)touch:(const anymetal::Memory&)memory
       writes:(bool)writes
         call:(const char*)call
         what:(const std::string&)what;
@end
