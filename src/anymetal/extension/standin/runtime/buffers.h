// Buffers: objects of our own, and memory of tensors that torch hands out as one.
#pragma once

#import <Metal/Metal.h>

#include <memory>

namespace anymetal {

// The memory behind a buffer, kept as long as this is.
struct Memory {
  char* data = nullptr;
  size_t length = 0;
  void* block = nullptr;  // of the virtual device, where it is a tensor's
  std::shared_ptr<void> keep;
};

// Refuses what is no buffer: freed memory, an address inside of a tensor.
Memory memory_of(id<MTLBuffer> buffer, const char* call);

}  // namespace anymetal

@interface AMBuffer : NSObject <MTLBuffer> {
 @public
  char* data;
  size_t bytes;
  MTLResourceOptions mode;
  bool owned;
  void (^deallocator)(void*, NSUInteger);
  NSString* name;
}
@end
