// The one device, and captures that are not made.
#include <Block.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "buffers.h"
#include "commands.h"
#include "libraries.h"
#include "objects.h"

namespace {

constexpr size_t kPage = 16384;  // of Apple silicon
constexpr size_t kThreadgroupMemory = 32 * 1024;

}  // namespace

@interface AMDevice : NSObject <MTLDevice>
@end

@implementation AMDevice
- (NSString*)name {
  return @"anymetal virtual GPU";
}
- (uint64_t)registryID {
  return 1;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(1024, 1024, 1024);
}
- (NSUInteger)maxThreadgroupMemoryLength {
  return kThreadgroupMemory;
}
- (NSUInteger)maxBufferLength {
  return NSUInteger(1) << 34;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return uint64_t(1) << 34;
}
- (NSUInteger)currentAllocatedSize {
  return 0;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (BOOL)isLowPower {
  return NO;
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
  switch (family) {
    case MTLGPUFamilyApple9:
    case MTLGPUFamilyApple8:
    case MTLGPUFamilyApple7:
    case MTLGPUFamilyMac2:
    case MTLGPUFamilyMetal3:
      return YES;
    default:
      return family < MTLGPUFamilyApple7 || (family > MTLGPUFamilyMac2 && family < 4000);
  }
}
- (id<MTLCommandQueue>)newCommandQueue {
  return [[AMCommandQueue alloc] init];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
  return [self newCommandQueue];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (length == 0 || length > [self maxBufferLength]) return nil;
  AMBuffer* buffer = [[AMBuffer alloc] init];
  buffer->data = (char*)aligned_alloc(kPage, (length + kPage - 1) / kPage * kPage);
  memset(buffer->data, 0, length);
  buffer->bytes = length;
  buffer->mode = options;
  buffer->owned = true;
  return buffer;
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)bytes
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  AMBuffer* buffer = (AMBuffer*)[self newBufferWithLength:length options:options];
  if (buffer) memcpy(buffer->data, bytes, length);
  return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  if ((uintptr_t)bytes % kPage || length % kPage) {
    anymetal::refuse("limits", "newBufferWithBytesNoCopy",
                     "address and length must be multiples of a page (16384 bytes)");
  }
  AMBuffer* buffer = [[AMBuffer alloc] init];
  buffer->data = (char*)bytes;
  buffer->bytes = length;
  buffer->mode = options;
  if (deallocator) buffer->deallocator = (void (^)(void*, NSUInteger))Block_copy(deallocator);
  return buffer;
}
- (id<MTLLibrary>)newDefaultLibrary {
  return nil;  // a library in an app's bundle, which no extension has
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
  if (source == nil) anymetal::refuse("argument_size", "newLibraryWithSource", "source is nil");
  const char* text = [source UTF8String];
  return anymetal::new_library(text, strlen(text), options, false, error);
}
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError**)error {
  return anymetal::new_library((const char*)[data bytes], [data length], nil, true, error);
}
- (id<MTLLibrary>)newLibraryWithURL:(NSURL*)url error:(NSError**)error {
  NSData* data = [NSData dataWithContentsOfFile:[url path]];
  if (data == nil) {
    if (error) *error = anymetal::error_of(MTLLibraryErrorFileNotFound, "there is no such file");
    return nil;
  }
  return [self newLibraryWithData:data error:error];
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error {
  return anymetal::new_pipeline(function, 0, error);
}
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLComputePipelineReflection**)reflection
                                    error:(NSError**)error {
  if (reflection) *reflection = nil;
  return anymetal::new_pipeline([descriptor computeFunction],
                                [descriptor maxTotalThreadsPerThreadgroup], error);
}
- (id<MTLFence>)newFence {
  return [[objc_getRequiredClass("AMFence") alloc] init];
}
- (id<MTLEvent>)newEvent {
  return [[AMEvent alloc] init];
}
- (id<MTLSharedEvent>)newSharedEvent {
  return [[AMEvent alloc] init];
}
@end

extern "C" {

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  static AMDevice* device = [[AMDevice alloc] init];
  return [device retain];
}

NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) {
  return [[NSArray arrayWithObject:MTLCreateSystemDefaultDevice()] retain];
}

}  // extern "C"

@interface AMCaptureScope : NSObject <MTLCaptureScope>
@end

@implementation AMCaptureScope
- (NSString*)label {
  return nil;
}
- (void)setLabel:(NSString*)label {
}
- (void)beginScope {
}
- (void)endScope {
}
@end

@implementation MTLSharedEventListener
@end

@implementation MTLCaptureDescriptor
- (id)captureObject {
  return nil;
}
- (void)setCaptureObject:(id)object {
}
- (MTLCaptureDestination)destination {
  return MTLCaptureDestinationDeveloperTools;
}
- (void)setDestination:(MTLCaptureDestination)destination {
}
- (NSURL*)outputURL {
  return nil;
}
- (void)setOutputURL:(NSURL*)url {
}
@end

@implementation MTLCaptureManager
+ (MTLCaptureManager*)sharedCaptureManager {
  static MTLCaptureManager* only = [[MTLCaptureManager alloc] init];
  return only;
}
- (BOOL)isCapturing {
  return NO;
}
- (BOOL)supportsDestination:(MTLCaptureDestination)destination {
  return NO;
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor error:(NSError**)error {
  const char* message = "a capture needs a Mac with Xcode: this one is not made";
  fprintf(stderr, "anymetal: %s\n", message);
  if (error) *error = anymetal::error_of(1, message);
  return NO;
}
- (void)stopCapture {
}
- (id<MTLCaptureScope>)newCaptureScopeWithDevice:(id<MTLDevice>)device {
  return [[AMCaptureScope alloc] init];
}
- (id<MTLCaptureScope>)newCaptureScopeWithCommandQueue:(id<MTLCommandQueue>)queue {
  return [[AMCaptureScope alloc] init];
}
@end
