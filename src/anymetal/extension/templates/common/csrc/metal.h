// Kernels, pipelines and bindings: what the operators of this extension share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/mps/MPSDevice.h>
#include <ATen/mps/MPSStream.h>
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "embedded_kernels.h"  // written by embed_kernels.py

namespace metal {

using Encoder = id<MTLComputeCommandEncoder>;
using Pipeline = id<MTLComputePipelineState>;

inline id<MTLDevice> device() { return at::mps::MPSDevice::getInstance()->device(); }

// torch keeps the buffer of an mps tensor where others keep the address of their memory.
inline id<MTLBuffer> buffer_of(const at::Tensor& tensor) {
  return __builtin_bit_cast(id<MTLBuffer>, tensor.storage().data());
}

// A view begins inside of its storage's buffer.
inline NSUInteger offset_of(const at::Tensor& tensor) {
  return static_cast<NSUInteger>(tensor.storage_offset()) * tensor.element_size();
}

inline const char* words(NSError* error) {
  return error ? error.localizedDescription.UTF8String : "no reason given";
}

// The library that was compiled ahead, or else the source, which every Mac compiles.
inline id<MTLLibrary> library() {
  static id<MTLLibrary> loaded = [] {
    NSError* error = nil;
    id<MTLLibrary> made = nil;
    if (kMetallibLength > 0) {
      dispatch_data_t data = dispatch_data_create(kMetallib, kMetallibLength, nullptr, nullptr);
      made = [device() newLibraryWithData:data error:&error];
    }
    if (!made) {
      MTLCompileOptions* options = [[MTLCompileOptions new] autorelease];
      if ([options respondsToSelector:@selector(setMathMode:)]) {
        options.mathMode = MTLMathModeSafe;
      } else {  // before macOS 15
        options.fastMathEnabled = NO;
      }
      made = [device() newLibraryWithSource:@(kKernelSource) options:options error:&error];
    }
    TORCH_CHECK(made, "the Metal kernels do not compile: ", words(error));
    return made;
  }();
  return loaded;
}

// A function constant: its index and value.
struct Constant {
  NSUInteger index;
  MTLDataType type;
  uint32_t bits;

  Constant(NSUInteger index, bool value)
      : index(index), type(MTLDataTypeBool), bits(value ? 1 : 0) {}
  Constant(NSUInteger index, uint32_t value) : index(index), type(MTLDataTypeUInt), bits(value) {}
};

// One pipeline for each kernel and its constants, made once and kept.
inline Pipeline pipeline(const std::string& kernel, const std::vector<Constant>& constants = {}) {
  static std::mutex mutex;
  static auto& made = *new std::unordered_map<std::string, Pipeline>;
  std::string variant = kernel;
  for (const Constant& constant : constants) {
    variant += "/" + std::to_string(constant.index) + "=" + std::to_string(constant.bits);
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = made.find(variant);
  if (found != made.end()) return found->second;
  MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
  for (const Constant& constant : constants) {
    [values setConstantValue:&constant.bits type:constant.type atIndex:constant.index];
  }
  NSError* error = nil;
  id<MTLFunction> function = [library() newFunctionWithName:@(kernel.c_str())
                                             constantValues:values
                                                      error:&error];
  TORCH_CHECK(function, "no Metal kernel ", variant, ": ", words(error));
  Pipeline state = [device() newComputePipelineStateWithFunction:function error:&error];
  [function release];
  TORCH_CHECK(state, "no pipeline for ", variant, ": ", words(error));
  made[variant] = state;
  return state;
}

inline void bind(Encoder encoder, const at::Tensor& tensor, NSUInteger index) {
  [encoder setBuffer:buffer_of(tensor) offset:offset_of(tensor) atIndex:index];
}

template <typename Value>
void bind_value(Encoder encoder, const Value& value, NSUInteger index) {
  [encoder setBytes:&value length:sizeof(Value) atIndex:index];
}

// Runs `body(encoder)` on the stream's queue, with torch's own encoder: it stays open for what is
// encoded next, and the stream ends and commits it (as SyncType::NONE means). Allocate before.
template <typename Body>
void encode(const Body& body) {
  at::mps::MPSStream* stream = at::mps::getCurrentMPSStream();
  at::mps::dispatch_sync_with_rethrow(stream->queue(), ^{
    @autoreleasepool {
      body(stream->commandEncoder());
    }
  });
}

// Runs `body(encoder)` with a blit encoder, for which torch's must have ended.
template <typename Body>
void encode_copies(const Body& body) {
  at::mps::MPSStream* stream = at::mps::getCurrentMPSStream();
  at::mps::dispatch_sync_with_rethrow(stream->queue(), ^{
    @autoreleasepool {
      stream->endKernelCoalescing();
      id<MTLBlitCommandEncoder> encoder = [stream->commandBuffer() blitCommandEncoder];
      body(encoder);
      [encoder endEncoding];
      stream->synchronize(at::mps::SyncType::NONE);
    }
  });
}

// What kernels call the dtype.
inline std::string type_name(const char* op, const char* argument, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "float";
    case at::kHalf:
      return "half";
    case at::kBFloat16:
      return "bfloat";
    default:
      TORCH_CHECK_TYPE(false, op, ": ", argument, " is ", tensor.scalar_type(),
                       ", expected float32, float16 or bfloat16");
  }
  return {};
}

// A tensor that kernels can index with 32 bits.
inline void check_tensor(const char* op, const char* argument, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_mps(), op, ": ", argument, " is on ", tensor.device(),
              ", expected mps");
  TORCH_CHECK(tensor.is_contiguous(), op, ": ", argument, " is not contiguous");
  TORCH_CHECK(tensor.numel() < (int64_t(1) << 31), op, ": ", argument, " has ", tensor.numel(),
              " elements; kernels index with 32 bits");
}

inline void check_same(const char* op, const char* argument, const at::Tensor& tensor,
                       const at::Tensor& like) {
  check_tensor(op, argument, tensor);
  TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), op, ": ", argument, " is ",
              tensor.scalar_type(), ", expected ", like.scalar_type());
  TORCH_CHECK(tensor.sizes() == like.sizes(), op, ": ", argument, " has sizes ", tensor.sizes(),
              ", expected ", like.sizes());
}

// A threadgroup of up to `wanted` threads, in whole simdgroups.
inline NSUInteger group_size(Pipeline pipeline, NSUInteger wanted) {
  const NSUInteger width = pipeline.threadExecutionWidth;
  const NSUInteger most = pipeline.maxTotalThreadsPerThreadgroup / width * width;
  const NSUInteger whole = (wanted + width - 1) / width * width;
  return MIN(MAX(whole, width), most);
}

}  // namespace metal
