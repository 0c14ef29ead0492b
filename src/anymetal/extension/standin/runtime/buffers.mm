// MTLBuffer over memory of our own, and the class that answers for memory of tensors.
#include "buffers.h"

#include <Block.h>

#include <cstdlib>
#include <string>

#include "objects.h"
#include "services.h"

using anymetal::services;

@interface AMStorage : AMBuffer
@end

namespace anymetal {

Class storage_class() {
  static const Class type = objc_getRequiredClass("AMStorage");
  return type;
}

Memory memory_of(id<MTLBuffer> buffer, const char* call) {
  Memory memory;
  const void* address = (const void*)buffer;
  if (address == nullptr) return memory;
  memory.block = services.hold(address, &memory.length);
  if (memory.block != nullptr) {
    memory.data = (char*)address;
    memory.keep = std::shared_ptr<void>(memory.block, services.let_go);
  } else if (is_object(address)) {
    AMBuffer* object = (AMBuffer*)[(id)buffer retain];
    memory.data = object->data;
    memory.length = object->bytes;
    memory.keep = std::shared_ptr<void>((void*)object, [](void* it) { [(id)it release]; });
  } else if (services.containing(address) != nullptr) {
    refuse("view_offset", call,
           "this is an address inside of a tensor's memory, as data_ptr() gives it, and no buffer");
  } else {
    refuse("freed_buffer", call, "this is no buffer, or that of a tensor that has been freed");
  }
  return memory;
}

}  // namespace anymetal

@implementation AMBuffer
- (NSString*)label {
  return name;
}
- (void)setLabel:(NSString*)text {
  [text retain];
  [name release];
  name = text;
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (MTLCPUCacheMode)cpuCacheMode {
  return MTLCPUCacheMode(mode & 0xF);
}
- (MTLStorageMode)storageMode {
  return MTLStorageMode(mode >> 4 & 0xF);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return MTLHazardTrackingMode(mode >> 8 & 0x3);
}
- (MTLResourceOptions)resourceOptions {
  return mode;
}
- (NSUInteger)allocatedSize {
  return [self length];
}
- (NSUInteger)length {
  return bytes;
}
- (uint64_t)gpuAddress {
  return (uint64_t)data;
}
- (void*)contents {
  return [self storageMode] == MTLStorageModePrivate ? nullptr : data;
}
- (void)didModifyRange:(NSRange)range {
}
- (void)dealloc {
  if (deallocator) {
    deallocator(data, bytes);
    Block_release(deallocator);
  }
  if (owned) free(data);
  [name release];
  [super dealloc];
}
@end

// `self` is the memory itself: nothing here may touch an instance variable.
@implementation AMStorage
- (NSString*)label {
  return nil;
}
- (void)setLabel:(NSString*)text {
}
- (MTLCPUCacheMode)cpuCacheMode {
  return MTLCPUCacheModeDefaultCache;
}
- (MTLStorageMode)storageMode {
  return MTLStorageModeShared;
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return MTLHazardTrackingModeTracked;
}
- (MTLResourceOptions)resourceOptions {
  return MTLResourceHazardTrackingModeTracked;
}
- (NSUInteger)length {
  return anymetal::memory_of((id<MTLBuffer>)self, "length").length;
}
- (uint64_t)gpuAddress {
  return (uint64_t)self;
}
- (void*)contents {
  return (void*)self;
}
- (id)retain {
  size_t bytes;
  services.hold((const void*)self, &bytes);
  return self;
}
- (oneway void)release {
  size_t bytes;
  void* block = services.hold((const void*)self, &bytes);
  services.let_go(block);
  services.let_go(block);
}
- (NSUInteger)retainCount {
  return 1;
}
- (Class)class {
  return [AMStorage class];
}
- (BOOL)isKindOfClass:(Class)wanted {
  return wanted == [AMStorage class] || wanted == [AMBuffer class] || wanted == [NSObject class];
}
- (BOOL)respondsToSelector:(SEL)selector {
  return class_respondsToSelector([AMStorage class], selector);
}
- (BOOL)conformsToProtocol:(Protocol*)protocol {
  return class_conformsToProtocol([AMBuffer class], protocol);
}
@end
