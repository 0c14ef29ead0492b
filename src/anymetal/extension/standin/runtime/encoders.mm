// What compute and blit encoders share, and the blit encoder with the fence.
#include "encoders.h"

#include <cstring>

#include "order.h"

using anymetal::memory_of;
using anymetal::refuse;
using anymetal::warn;

@interface AMFence : NSObject <MTLFence>
@end

@interface AMBlitEncoder : AMEncoder <MTLBlitCommandEncoder>
@end

@implementation AMEncoder
- (void)check:(const char*)call {
  if (ended) {
    refuse("stale_encoder", call,
           "this encoder has ended: take a new one inside of the block that encodes");
  }
}
- (void)finish {
  ended = true;
  buffer->open = nil;
  anymetal::keep_for_a_while(self);
}
- (void)touch:(const anymetal::Memory&)memory
       writes:(bool)writes
         call:(const char*)call
         what:(const std::string&)what {
  if (memory.block && anymetal::services.is_freed(memory.block)) {
    refuse("freed_buffer", call, what + " was bound from a tensor that has been freed since");
  }
  // What has been committed to the queue by now comes before whatever is committed later.
  anymetal::order.follow([buffer timeline], buffer -> queue);
  const auto conflict = anymetal::order.touch([buffer timeline], memory.data, writes,
                                              "a command buffer of the extension's own");
  if (conflict) {
    warn("unordered_buffers", "error", call,
         what + " is used by " + *conflict + " as well, and no event orders the two");
  }
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (NSString*)label {
  return name;
}
- (void)setLabel:(NSString*)text {
  name = [text retain];
}
- (void)endEncoding {
  [self check:"endEncoding"];
  if (buffer->open_is_torchs) {
    refuse("owned_by_torch", "endEncoding", "this is the encoder of torch's stream, which ends it");
  }
  [self finish];
}
- (void)insertDebugSignpost:(NSString*)text {
}
- (void)pushDebugGroup:(NSString*)text {
}
- (void)popDebugGroup {
}
- (void)dealloc {
  [buffer release];
  [name release];
  [super dealloc];
}
@end

@implementation AMFence
- (NSString*)label {
  return nil;
}
- (void)setLabel:(NSString*)text {
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
@end

@implementation AMBlitEncoder
- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  const char* call = "copyFromBuffer";
  [self check:call];
  const auto from = memory_of(source, call);
  const auto to = memory_of(destination, call);
  if (!from.data || !to.data) refuse("argument_size", call, "a buffer is nil");
  if (sourceOffset + size > from.length || destinationOffset + size > to.length) {
    refuse("argument_size", call,
           "copies bytes " + std::to_string(sourceOffset) + " to " +
               std::to_string(sourceOffset + size) + " of " + std::to_string(from.length) +
               " to byte " + std::to_string(destinationOffset) + " of " +
               std::to_string(to.length));
  }
  if ((sourceOffset | destinationOffset | size) % 4) {
    refuse("limits", call, "macOS copies at offsets and sizes that are multiples of 4 bytes");
  }
  if (from.data == to.data && sourceOffset < destinationOffset + size &&
      destinationOffset < sourceOffset + size) {
    refuse("argument_size", call, "source and destination overlap");
  }
  [self touch:from writes:false call:call what:"the source"];
  [self touch:to writes:true call:call what:"the destination"];
  [buffer add:{[=] { memcpy(to.data + destinationOffset, from.data + sourceOffset, size); }}];
}
- (void)fillBuffer:(id<MTLBuffer>)target range:(NSRange)range value:(uint8_t)value {
  const char* call = "fillBuffer";
  [self check:call];
  const auto memory = memory_of(target, call);
  if (!memory.data || range.location + range.length > memory.length) {
    refuse("argument_size", call,
           "fills bytes " + std::to_string(range.location) + " to " +
               std::to_string(range.location + range.length) + " of " +
               std::to_string(memory.length));
  }
  [self touch:memory writes:true call:call what:"the buffer"];
  [buffer add:{[=] { memset(memory.data + range.location, value, range.length); }}];
}
- (void)synchronizeResource:(id<MTLResource>)resource {
  [self check:"synchronizeResource"];
}
- (void)updateFence:(id<MTLFence>)fence {
  [self check:"updateFence"];
}
- (void)waitForFence:(id<MTLFence>)fence {
  [self check:"waitForFence"];
}
@end

namespace anymetal {

id<MTLBlitCommandEncoder> new_blit_encoder(AMCommandBuffer* buffer) {
  AMBlitEncoder* encoder = [[AMBlitEncoder alloc] init];
  encoder->buffer = [buffer retain];
  buffer->open = encoder;
  buffer->open_is_torchs = false;
  return [encoder autorelease];
}

}  // namespace anymetal
