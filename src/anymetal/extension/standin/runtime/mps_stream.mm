// at::mps as a Linux build of torch lacks it: the device and the one stream, with the rules of
// torch's own (one encoder kept open for many kernels, all of it on the stream's queue).
#include <ATen/mps/MPSDevice.h>
#include <ATen/mps/MPSStream.h>

#include <exception>

#include "commands.h"
#include "encoders.h"
#include "operators.h"
#include "order.h"
#include "queues.h"
#include "services.h"

using anymetal::refuse;
using anymetal::services;
using anymetal::warn;

namespace {

// Set while the stream calls itself: one call of the extension's is one finding.
thread_local bool inside = false;

void check_queue(dispatch_queue_t queue, const char* call) {
  if (inside || anymetal::is_on(queue)) return;
  warn("stream_queue", "warning", call,
       "called outside of a block on the stream's queue, where another thread may be encoding");
}

void host_wait(const char* call) {
  warn("host_wait", "warning", call,
       "the host waits for the GPU inside of an operator, and nothing is encoded meanwhile");
}

// Whoever takes the encoder outside of a block keeps it; a block gives it up at its end.
void hold_encoder(bool taken, bool in_block) {
  services.set_encoding(taken);
  if (auto* current = anymetal::current_operator()) current->holds_encoder = taken && !in_block;
}

}  // namespace

namespace at::mps {

MPSDevice* MPSDevice::_device = nullptr;
MPSDevice::MPSDevice() : _mtl_device(MTLCreateSystemDefaultDevice()) {}
MPSDevice::~MPSDevice() = default;
MPSDevice* MPSDevice::getInstance() {
  static auto* only = new MPSDevice;
  return only;
}
bool MPSDevice::isMacOS13Plus(MacOSVersion version) const {
  return version <= MacOSVersion::MACOS_VER_15_2_PLUS;
}
std::string MPSDevice::getName() const { return [[_mtl_device name] UTF8String]; }
unsigned MPSDevice::getCoreCount() const { return 10; }
bool is_available() { return true; }
bool is_macos_13_or_newer(MacOSVersion version) {
  return MPSDevice::getInstance()->isMacOS13Plus(version);
}
bool is_apple_family_or_newer(AppleGPUFamily family) {
  return family <= AppleGPUFamily::APPLE_9_PLUS;
}
at::Allocator* GetMPSAllocator() { return c10::GetAllocator(c10::DeviceType::MPS); }

MPSStream::MPSStream(Stream stream) : _stream(stream) {
  _commandQueue = [MPSDevice::getInstance()->device() newCommandQueue];
  _serialQueue = dispatch_queue_create("metal gpu stream", nullptr);
  anymetal::set_stream_queue(_serialQueue);
}
MPSStream::~MPSStream() = default;
MTLDevice_t MPSStream::device() const { return MPSDevice::getInstance()->device(); }

MPSCommandBuffer* MPSStream::commandBuffer() {
  check_queue(_serialQueue, "commandBuffer");
  if (!_commandBuffer) {
    _commandBuffer = [[MPSCommandBuffer commandBufferFromCommandQueue:_commandQueue] retain];
    anymetal::own(_commandBuffer);
  }
  return _commandBuffer;
}

id<MTLComputeCommandEncoder> MPSStream::commandEncoder() {
  check_queue(_serialQueue, "commandEncoder");
  if (!_commandEncoder) {
    inside = true;
    MPSCommandBuffer* buffer = commandBuffer();
    inside = false;
    _commandEncoder = [[buffer computeCommandEncoder] retain];
    anymetal::root_of(_commandBuffer)->open_is_torchs = true;
  }
  hold_encoder(true, anymetal::is_on(_serialQueue));
  return _commandEncoder;
}

void MPSStream::endKernelCoalescing() {
  if (!_commandEncoder) return;
  [(AMEncoder*)_commandEncoder finish];
  [_commandEncoder release];
  _commandEncoder = nil;
  hold_encoder(false, true);
}

void MPSStream::synchronize(SyncType type) {
  check_queue(_serialQueue, "synchronize");
  endKernelCoalescing();
  switch (type) {
    case SyncType::NONE:
    case SyncType::COMMIT_ADAPTIVE:  // it commits where memory is short
      break;
    case SyncType::COMMIT:
      commit();
      break;
    case SyncType::COMMIT_AND_CONTINUE:
      commitAndContinue();
      break;
    case SyncType::COMMIT_AND_WAIT:
      host_wait("synchronize(COMMIT_AND_WAIT)");
      commitAndWait();
      break;
  }
}

void MPSStream::commit() {
  if (_commandBuffer) [_commandBuffer commitAndContinue];
}
void MPSStream::commitAndContinue() { commit(); }
void MPSStream::flush() { commit(); }

void MPSStream::commitAndWait() {
  if (!_commandBuffer) return;
  AMCommandBuffer* root = anymetal::root_of(_commandBuffer);
  if (root->open) refuse("open_encoder", "synchronize", "an encoder is still encoding");
  anymetal::commit(root);
  anymetal::wait_for(root);
  [_commandBuffer release];
  _commandBuffer = nil;
}

void MPSStream::addCompletedHandler(MTLCommandBufferHandler block) {
  anymetal::run_on(_serialQueue, ^{
    @autoreleasepool {
      [commandBuffer() addCompletedHandler:block];
    }
  });
}

void MPSStream::copy(id<MTLBuffer> source, id<MTLBuffer> destination, size_t length,
                     size_t source_offset, size_t destination_offset, uint64_t, SyncType type) {
  anymetal::run_on(_serialQueue, ^{
    @autoreleasepool {
      endKernelCoalescing();
      id<MTLBlitCommandEncoder> encoder = [commandBuffer() blitCommandEncoder];
      [encoder copyFromBuffer:source
                 sourceOffset:source_offset
                     toBuffer:destination
            destinationOffset:destination_offset
                         size:length];
      [encoder endEncoding];
      synchronize(type);
    }
  });
}

void MPSStream::copy_and_sync(id<MTLBuffer> source, id<MTLBuffer> destination, size_t length,
                              size_t source_offset, size_t destination_offset, bool non_blocking,
                              uint64_t profile) {
  copy(source, destination, length, source_offset, destination_offset, profile,
       non_blocking ? SyncType::COMMIT : SyncType::COMMIT_AND_WAIT);
}

MPSStream* MPSStreamImpl::_stream = nullptr;
MPSStream* MPSStreamImpl::getInstance() {
  static auto* only = new MPSStream(Stream(Stream::UNSAFE, Device(DeviceType::MPS, 0), 0));
  return only;
}
MPSStream* getDefaultMPSStream() { return MPSStreamImpl::getInstance(); }
MPSStream* getCurrentMPSStream() { return getDefaultMPSStream(); }

void dispatch_sync_with_rethrow(dispatch_queue_t queue, void (^block)()) {
  anymetal::run_on(queue, block);
}

}  // namespace at::mps

// What the virtual device calls: before an operator of torch's, for memory, and for torch::mps.
extern "C" {

// An operator of torch's may end the stream's encoder, as those do that are graphs on a Mac.
void anymetal_extension_before_operator() {
  auto* stream = at::mps::getDefaultMPSStream();
  if (anymetal::is_on(stream->queue())) {
    refuse("held_allocation", "an operator of torch's",
           "called inside of a block on the stream's queue, where it waits for itself");
  }
  anymetal::run_on(stream->queue(), ^{
    stream->endKernelCoalescing();
  });
}

void anymetal_extension_allocating() {
  auto* stream = at::mps::getDefaultMPSStream();
  const auto* current = anymetal::current_operator();
  if (!anymetal::is_on(stream->queue()) && !(current && current->holds_encoder)) return;
  warn("held_allocation", "error", "an allocation",
       "memory is allocated while an encoder is held: short of memory, torch waits for the stream "
       "and ends the encoder");
}

// torch::mps::synchronize() of an extension, or Python's, outside of every operator of one.
void anymetal_extension_synchronizing() {
  if (anymetal::current_operator()) host_wait("torch::mps::synchronize");
  anymetal::order.host_waits_for(anymetal::kStream);
}

void* anymetal_extension_command_buffer() {
  auto* stream = at::mps::getDefaultMPSStream();
  stream->endKernelCoalescing();
  return (void*)stream->commandBuffer();
}

void* anymetal_extension_dispatch_queue() { return (void*)at::mps::getDefaultMPSStream()->queue(); }

void anymetal_extension_commit() {
  at::mps::getDefaultMPSStream()->synchronize(at::mps::SyncType::COMMIT);
}

}  // extern "C"
