// Every misuse that the checker knows, as an operator, each beside one that does the same right.
// The comment behind a line names what is found there.
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <string>

#include "encode.h"

namespace {

void twice_into(const Tensor& x, const Tensor& y) {
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    launch(encoder, y);
  });
}

Tensor twice(const Tensor& x) {
  Tensor y = at::empty_like(x);
  twice_into(x, y);
  return y;
}

// An encoder that has ended.
Tensor stale_encoder(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  Encoder encoder = nil;
  in_block([&] {
    encoder = stream()->commandEncoder();
    set(encoder, x, y);
    stream()->synchronize(SyncType::COMMIT);
  });
  in_block([&] {
    if (!wrong) {
      encoder = stream()->commandEncoder();
      set(encoder, x, y);
    }
    [encoder setBuffer:buffer_of(x) offset:offset_of(x) atIndex:0];  // finds: stale_encoder
    launch(encoder, y);
  });
  return y;
}

// The encoder is taken, then an operator of torch's runs, which may end it.
Tensor kept_encoder(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  Encoder encoder = nil;
  in_block([&] { encoder = stream()->commandEncoder(); });
  Tensor z = at::add(x, 0);
  in_block([&] {
    if (!wrong) encoder = stream()->commandEncoder();
    [encoder setComputePipelineState:pipeline("twice")];  // finds: stale_encoder
    set(encoder, z, y);
    launch(encoder, y);
  });
  return y;
}

Tensor owned_encoder(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    launch(encoder, y);
    if (wrong) [encoder endEncoding];  // finds: owned_by_torch
  });
  return y;
}

Tensor owned_buffer(const Tensor& x, bool wrong) {
  Tensor y = twice(x);
  in_block([&] {
    if (wrong) {
      [stream()->commandBuffer() commit];  // finds: owned_by_torch
    } else {
      stream()->synchronize(SyncType::COMMIT);
    }
  });
  return y;
}

Tensor second_encoder(const Tensor& x, bool wrong) {
  Tensor y = twice(x);
  Tensor z = at::empty_like(x);
  in_block([&] {
    if (!wrong) stream()->endKernelCoalescing();
    Encoder encoder = [stream()->commandBuffer() computeCommandEncoder];  // finds: open_encoder
    set(encoder, x, z);
    launch(encoder, z);
    [encoder endEncoding];
  });
  return z;
}

Tensor blit(const Tensor& x, bool wrong) {
  Tensor y = twice(x);
  Tensor z = at::empty_like(x);
  in_block([&] {
    if (!wrong) stream()->endKernelCoalescing();
    id<MTLBlitCommandEncoder> encoder =
        [stream()->commandBuffer() blitCommandEncoder];  // finds: open_encoder
    [encoder copyFromBuffer:buffer_of(y)
               sourceOffset:0
                   toBuffer:buffer_of(z)
          destinationOffset:0
                       size:y.nbytes()];
    [encoder endEncoding];
  });
  return z;
}

Tensor waits(const Tensor& x, bool wrong) {
  Tensor y = twice(x);
  in_block([&] {
    stream()->synchronize(wrong ? SyncType::COMMIT_AND_WAIT : SyncType::NONE);  // finds: host_wait
  });
  return y;
}

// On a queue of its own, waiting for the stream and the stream for it.
Tensor own_queue(const Tensor& x, const std::string& mistake) {
  static id<MTLCommandQueue> queue = [device() newCommandQueue];
  Tensor y = at::empty_like(x);
  @autoreleasepool {
    id<MTLEvent> ready = [[device() newEvent] autorelease];
    id<MTLEvent> done = [[device() newEvent] autorelease];
    if (mistake != "no wait") {
      in_block([&] {
        stream()->endKernelCoalescing();
        [stream()->commandBuffer() encodeSignalEvent:ready value:1];
        stream()->synchronize(SyncType::COMMIT);
      });
    }
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    if (mistake != "no wait") [commands encodeWaitForEvent:ready value:1];
    Encoder encoder = [commands computeCommandEncoder];
    set(encoder, x, y);
    launch(encoder, y);  // finds: unordered_buffers
    [encoder endEncoding];
    [commands encodeSignalEvent:done value:1];
    [commands commit];
    if (mistake == "waits") [commands waitUntilCompleted];  // finds: host_wait
    if (mistake == "no signal") return y;
    in_block([&] {
      stream()->endKernelCoalescing();
      [stream()->commandBuffer() encodeWaitForEvent:done value:1];
    });
  }
  return y;
}

Tensor own_queue_unordered(const Tensor& x, bool wrong) {
  return own_queue(x, wrong ? "no wait" : "");
}

Tensor own_queue_waits(const Tensor& x, bool wrong) { return own_queue(x, wrong ? "waits" : ""); }

Tensor own_queue_unseen(const Tensor& x, bool wrong) {
  return own_queue(x, wrong ? "no signal" : "");  // finds nowhere in particular
}

Tensor held_allocation(const Tensor& x, bool wrong) {
  Tensor y;
  if (!wrong) y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    if (wrong) y = at::empty_like(x);  // finds: held_allocation
    set(encoder, x, y);
    launch(encoder, y);
  });
  return y;
}

Tensor operator_in_block(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    launch(encoder, y);
    if (wrong) y = at::add(y, 0);  // finds: held_allocation
  });
  return y;
}

Tensor threadgroup_length(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y, "by_group");
    if (!wrong) [encoder setThreadgroupMemoryLength:32 * sizeof(float) atIndex:0];
    launch(encoder, y);  // finds: threadgroup_length
  });
  return y;
}

Tensor unbound(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    stream()->endKernelCoalescing();
    Encoder encoder = stream()->commandEncoder();
    [encoder setComputePipelineState:pipeline("twice")];
    if (!wrong) [encoder setBuffer:buffer_of(x) offset:offset_of(x) atIndex:0];
    [encoder setBuffer:buffer_of(y) offset:offset_of(y) atIndex:1];
    launch(encoder, y);  // finds: argument_size
  });
  return y;
}

// What an earlier operator bound is still there.
Tensor bound_before(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    [encoder setComputePipelineState:pipeline("twice")];
    if (!wrong) [encoder setBuffer:buffer_of(x) offset:offset_of(x) atIndex:0];
    [encoder setBuffer:buffer_of(y) offset:offset_of(y) atIndex:1];
    launch(encoder, y);  // finds: argument_size
  });
  return y;
}

Tensor too_small(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    if (wrong) [encoder setBuffer:buffer_of(y) offset:y.nbytes() - 2 atIndex:1];
    launch(encoder, y);  // finds: argument_size
  });
  return y;
}

Tensor view_offset(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    if (wrong) [encoder setBuffer:buffer_of(x) offset:0 atIndex:0];
    launch(encoder, y);  // finds: view_offset
  });
  return y;
}

Tensor data_pointer(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    if (wrong) {
      id<MTLBuffer> buffer = __builtin_bit_cast(id<MTLBuffer>, x.data_ptr());
      [encoder setBuffer:buffer offset:0 atIndex:0];  // finds: view_offset
    }
    launch(encoder, y);
  });
  return y;
}

Tensor many_threads(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    launch(encoder, y, wrong ? 2048 : 32);  // finds: limits
  });
  return y;
}

Tensor freed_buffer(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  Tensor copy = x.clone();
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, copy, y);
    if (wrong) copy = Tensor();
    launch(encoder, y);  // finds: freed_buffer
  });
  return y;
}

Tensor freed_before(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  Tensor copy = x.clone();
  id<MTLBuffer> buffer = buffer_of(copy);
  if (wrong) copy = Tensor();
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    [encoder setBuffer:buffer offset:0 atIndex:0];  // finds: freed_buffer
    launch(encoder, y);
  });
  return y;
}

Tensor outside_queue(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  if (!wrong) {
    twice_into(x, y);
    return y;
  }
  Encoder encoder = stream()->commandEncoder();  // finds: stream_queue
  set(encoder, x, y);
  launch(encoder, y);
  return y;
}

Tensor nested_block(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  if (!wrong) {
    twice_into(x, y);
    return y;
  }
  in_block([&] {
    in_block([&] { launch(stream()->commandEncoder(), y); });  // finds: stream_queue
  });
  return y;
}

Tensor thrown(const Tensor& x, bool wrong) {
  Tensor y = twice(x);
  const auto body = ^{
    TORCH_CHECK(!wrong, "thrown inside of a block");
  };
  dispatch_sync(stream()->queue(), body);  // finds: stream_queue
  return y;
}

// The kernel's own mistake, found at its line of Metal.
Tensor kernel_mistake(const Tensor& x, bool wrong) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y, wrong ? "shifted" : "twice");
    launch(encoder, y);
  });
  return y;
}

// Memory that is reached by its address alone: the encoder must be told.
Tensor by_address(const Tensor& x) {
  Tensor y = at::empty_like(x);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    [encoder setComputePipelineState:pipeline("by_address")];
    const uint64_t address = [buffer_of(x) gpuAddress] + offset_of(x);
    [encoder setBytes:&address length:sizeof address atIndex:0];
    [encoder setBuffer:buffer_of(y) offset:offset_of(y) atIndex:1];
    [encoder useResource:buffer_of(x) usage:MTLResourceUsageRead];
    launch(encoder, y);
  });
  return y;
}

// Function constants that are vectors, one by one and as a range.
Tensor by_constants(const Tensor& x) {
  Tensor y = at::empty_like(x);
  NSError* error = nil;
  id<MTLLibrary> library = [device() newLibraryWithSource:@(kKernelSource)
                                                  options:nil
                                                    error:&error];
  TORCH_CHECK(library, error.localizedDescription.UTF8String);
  MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
  const float weights[] = {0.125f, 0.5f, 0.5f};
  const bool on[] = {true, false};
  const int16_t rows[] = {-1, 2, -3, 0, 4, -5, 6, 0};
  const uint64_t large[] = {0xfedcba9876543210ull, 7};
  [values setConstantValue:weights type:MTLDataTypeFloat3 withName:@"weights"];
  [values setConstantValue:on type:MTLDataTypeBool2 atIndex:1];
  [values setConstantValues:rows type:MTLDataTypeShort3 withRange:NSMakeRange(2, 2)];
  [values setConstantValue:large type:MTLDataTypeULong2 atIndex:4];
  id<MTLFunction> function = [library newFunctionWithName:@"by_constants"
                                           constantValues:values
                                                    error:&error];
  TORCH_CHECK(function, error.localizedDescription.UTF8String);
  id<MTLComputePipelineState> state = [device() newComputePipelineStateWithFunction:function
                                                                              error:&error];
  TORCH_CHECK(state, error.localizedDescription.UTF8String);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    [encoder setComputePipelineState:state];
    launch(encoder, y);
  });
  return y;
}

// A library that was compiled ahead, as its bytes.
Tensor from_metallib(const Tensor& x, const Tensor& bytes) {
  Tensor y = at::empty_like(x);
  NSError* error = nil;
  dispatch_data_t data = dispatch_data_create(bytes.const_data_ptr(), bytes.nbytes(), nullptr,
                                              DISPATCH_DATA_DESTRUCTOR_DEFAULT);
  id<MTLLibrary> library = [device() newLibraryWithData:data error:&error];
  TORCH_CHECK(library, error.localizedDescription.UTF8String);
  id<MTLFunction> function = [library newFunctionWithName:library.functionNames.firstObject];
  id<MTLComputePipelineState> state = [device() newComputePipelineStateWithFunction:function
                                                                              error:&error];
  TORCH_CHECK(state, error.localizedDescription.UTF8String);
  in_block([&] {
    Encoder encoder = stream()->commandEncoder();
    set(encoder, x, y);
    [encoder setComputePipelineState:state];
    launch(encoder, y);
  });
  return y;
}

// Buffers of its own, an indirect dispatch, a fence, a handler, a capture.
Tensor everything(const Tensor& x) {
  Tensor y = at::empty_like(x);
  const auto handled = std::make_shared<std::atomic<bool>>(false);
  const auto freed = std::make_shared<std::atomic<bool>>(false);
  @autoreleasepool {
    const MTLDispatchThreadgroupsIndirectArguments counts = {{uint32_t(x.numel() / 32), 1, 1}};
    id<MTLBuffer> groups = [[device() newBufferWithBytes:&counts
                                                  length:sizeof counts
                                                 options:MTLResourceStorageModeShared] autorelease];
    id<MTLBuffer> hidden =
        [[device() newBufferWithLength:x.nbytes()
                               options:MTLResourceStorageModePrivate] autorelease];
    TORCH_CHECK([hidden contents] == nullptr && [hidden length] == x.nbytes());
    void* memory = nullptr;
    TORCH_CHECK(posix_memalign(&memory, 16384, 16384) == 0);
    id<MTLBuffer> pages = [[device() newBufferWithBytesNoCopy:memory
                                                       length:16384
                                                      options:MTLResourceStorageModeShared
                                                  deallocator:^(void* bytes, NSUInteger length) {
                                                    *freed = length == 16384;
                                                    free(bytes);
                                                  }] autorelease];
    TORCH_CHECK([pages contents] == memory);
    id<MTLFence> fence = [[device() newFence] autorelease];
    NSError* error = nil;
    [[MTLCaptureManager sharedCaptureManager]
        startCaptureWithDescriptor:[[MTLCaptureDescriptor new] autorelease]
                             error:&error];
    TORCH_CHECK(error, "a capture needs Xcode");
    in_block([&] {
      stream()->endKernelCoalescing();
      id<MTLBlitCommandEncoder> copies = [stream()->commandBuffer() blitCommandEncoder];
      [copies copyFromBuffer:buffer_of(x)
                sourceOffset:offset_of(x)
                    toBuffer:hidden
           destinationOffset:0
                        size:x.nbytes()];
      [copies copyFromBuffer:hidden
                sourceOffset:0
                    toBuffer:pages
           destinationOffset:256
                        size:x.nbytes()];
      [copies updateFence:fence];
      [copies endEncoding];
      Encoder encoder = [stream()->commandBuffer()
          computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
      [encoder waitForFence:fence];
      set(encoder, x, y);
      const id<MTLBuffer> buffers[1] = {pages};
      const NSUInteger offsets[1] = {256};
      [encoder setBuffers:buffers offsets:offsets withRange:NSMakeRange(0, 1)];
      [encoder dispatchThreadgroupsWithIndirectBuffer:groups
                                 indirectBufferOffset:0
                                threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
      [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
      [encoder endEncoding];
      [stream()->commandBuffer() addCompletedHandler:^(id<MTLCommandBuffer> buffer) {
        *handled = [buffer status] == MTLCommandBufferStatusCompleted;
      }];
      stream()->synchronize(SyncType::COMMIT);
    });
  }
  TORCH_CHECK(*handled, "the handler did not run");
  TORCH_CHECK(*freed, "the deallocator did not run");
  return y;
}

}  // namespace

#define OPERATORS(each)                                                                           \
  each(stale_encoder) each(kept_encoder) each(owned_encoder) each(owned_buffer)                   \
      each(second_encoder) each(blit) each(waits) each(own_queue_unordered) each(own_queue_waits) \
          each(own_queue_unseen) each(held_allocation) each(operator_in_block)                    \
              each(threadgroup_length) each(unbound) each(bound_before) each(too_small)           \
                  each(view_offset) each(data_pointer) each(many_threads) each(freed_buffer)      \
                      each(freed_before) each(outside_queue) each(nested_block) each(thrown)      \
                          each(kernel_mistake)

#define DEFINE(name) library.def(#name "(Tensor x, bool wrong) -> Tensor");
#define IMPLEMENT(name) library.impl(#name, &name);

TORCH_LIBRARY(host, library) {
  OPERATORS(DEFINE)
  library.def("by_address(Tensor x) -> Tensor");
  library.def("by_constants(Tensor x) -> Tensor");
  library.def("from_metallib(Tensor x, Tensor bytes) -> Tensor");
  library.def("everything(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(host, MPS, library) {
  OPERATORS(IMPLEMENT)
  library.impl("by_address", &by_address);
  library.impl("by_constants", &by_constants);
  library.impl("from_metallib", &from_metallib);
  library.impl("everything", &everything);
}
