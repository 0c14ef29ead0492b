// The operators of the example, a pattern each. The same file is built on a Mac and on Linux.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

#include "metal.h"

namespace {

using metal::Constant;
using metal::Encoder;
using metal::Pipeline;

// Four elements a thread, a variant for each pair of function constants.
at::Tensor scale(const at::Tensor& x, const std::optional<at::Tensor>& bias, double factor,
                 bool clamped) {
  const char* op = "patterns::scale";
  metal::check_tensor(op, "x", x);
  TORCH_CHECK(x.dim() > 0, op, ": x has no dimensions");
  const std::string type = metal::type_name(op, "x", x);
  if (bias) {
    metal::check_tensor(op, "bias", *bias);
    TORCH_CHECK(bias->dim() == 1 && bias->size(0) == x.size(-1), op, ": bias has sizes ",
                bias->sizes(), ", expected ", x.size(-1));
    TORCH_CHECK(bias->scalar_type() == x.scalar_type(), op, ": bias is ", bias->scalar_type(),
                ", expected ", x.scalar_type());
  }
  const at::Tensor out = at::empty_like(x);
  if (x.numel() == 0) return out;
  const bool vectors = metal::offset_of(x) % (4 * x.element_size()) == 0;
  const Pipeline pipeline = metal::pipeline(
      "scale_" + type, {Constant(0, clamped), Constant(1, bias.has_value()), Constant(2, vectors)});
  const auto count = static_cast<uint32_t>(x.numel());
  const auto columns = static_cast<uint32_t>(x.size(-1));
  const auto narrow = static_cast<float>(factor);
  const NSUInteger threads = (count + 3) / 4;
  metal::encode([&](Encoder encoder) {
    [encoder setComputePipelineState:pipeline];
    metal::bind(encoder, x, 0);
    metal::bind(encoder, bias ? *bias : x, 1);
    metal::bind(encoder, out, 2);
    metal::bind_value(encoder, narrow, 3);
    metal::bind_value(encoder, columns, 4);
    metal::bind_value(encoder, count, 5);
    [encoder dispatchThreads:MTLSizeMake(threads, 1, 1)
        threadsPerThreadgroup:MTLSizeMake(metal::group_size(pipeline, 256), 1, 1)];
  });
  return out;
}

constexpr uint32_t kPartLength = 4096;

void encode_row_sums(Encoder encoder, Pipeline pipeline, const at::Tensor& x,
                     const at::Tensor& sums, uint32_t columns, uint32_t parts, uint32_t length) {
  const NSUInteger rows = static_cast<NSUInteger>(sums.numel()) / parts;
  const NSUInteger group = metal::group_size(pipeline, std::min<NSUInteger>(length, 256));
  [encoder setComputePipelineState:pipeline];
  metal::bind(encoder, x, 0);
  metal::bind(encoder, sums, 1);
  metal::bind_value(encoder, columns, 2);
  metal::bind_value(encoder, length, 3);
  [encoder setThreadgroupMemoryLength:(group / 32 * sizeof(float) + 15) / 16 * 16 atIndex:0];
  [encoder dispatchThreadgroups:MTLSizeMake(parts, rows, 1)
          threadsPerThreadgroup:MTLSizeMake(group, 1, 1)];
}

// Short rows take one phase; long ones two, so that the GPU has enough threadgroups.
at::Tensor row_sums(const at::Tensor& x) {
  const char* op = "patterns::row_sums";
  metal::check_tensor(op, "x", x);
  TORCH_CHECK(x.dim() == 2, op, ": x has ", x.dim(), " dimensions, expected 2");
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat, op, ": x is ", x.scalar_type(),
                   ", expected float32");
  TORCH_CHECK(x.size(1) > 0, op, ": x has rows of no elements");
  const auto columns = static_cast<uint32_t>(x.size(1));
  const uint32_t parts = (columns + kPartLength - 1) / kPartLength;
  const at::Tensor sums = at::empty({x.size(0)}, x.options());
  const at::Tensor partial = parts > 1 ? at::empty({x.size(0), int64_t(parts)}, x.options()) : sums;
  if (sums.numel() == 0) return sums;
  const Pipeline pipeline = metal::pipeline("row_sums");
  metal::encode([&](Encoder encoder) {
    encode_row_sums(encoder, pipeline, x, partial, columns, parts, std::min(columns, kPartLength));
    if (parts > 1) encode_row_sums(encoder, pipeline, partial, sums, parts, 1, parts);
  });
  return sums;
}

// Blocks of a paged cache, copied inside of it by the blit encoder.
void copy_blocks(at::Tensor cache, at::IntArrayRef sources, at::IntArrayRef targets) {
  const char* op = "patterns::copy_blocks";
  metal::check_tensor(op, "cache", cache);
  TORCH_CHECK(cache.dim() > 0, op, ": cache has no dimensions");
  TORCH_CHECK(sources.size() == targets.size(), op, ": ", sources.size(), " sources and ",
              targets.size(), " targets");
  for (const int64_t block : sources) {
    TORCH_CHECK_INDEX(0 <= block && block < cache.size(0), op, ": source ", block, " of ",
                      cache.size(0), " blocks");
  }
  for (const int64_t block : targets) {
    TORCH_CHECK_INDEX(0 <= block && block < cache.size(0), op, ": target ", block, " of ",
                      cache.size(0), " blocks");
  }
  if (sources.empty() || cache.numel() == 0) return;
  const NSUInteger bytes = static_cast<NSUInteger>(cache.stride(0)) * cache.element_size();
  TORCH_CHECK(bytes % 4 == 0, op, ": a block has ", bytes, " bytes, expected a multiple of 4");
  const NSUInteger start = metal::offset_of(cache);
  metal::encode_copies([&](id<MTLBlitCommandEncoder> encoder) {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i] == targets[i]) continue;
      [encoder copyFromBuffer:metal::buffer_of(cache)
                 sourceOffset:start + static_cast<NSUInteger>(sources[i]) * bytes
                     toBuffer:metal::buffer_of(cache)
            destinationOffset:start + static_cast<NSUInteger>(targets[i]) * bytes
                         size:bytes];
    }
  });
}

void check_state(const char* op, const char* argument, const at::Tensor& tensor,
                 const at::Tensor& parameter) {
  metal::check_same(op, argument, tensor, parameter);
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kFloat, op, ": ", argument, " is ",
                   tensor.scalar_type(), ", expected float32");
}

// A step over many tensors: all of it in one block, on one encoder.
void sgd_step(at::TensorList parameters, at::TensorList gradients, at::TensorList momenta,
              double rate, double momentum) {
  const char* op = "patterns::sgd_step";
  TORCH_CHECK(parameters.size() == gradients.size() && parameters.size() == momenta.size(), op,
              ": ", parameters.size(), " parameters, ", gradients.size(), " gradients and ",
              momenta.size(), " momenta");
  for (size_t i = 0; i < parameters.size(); ++i) {
    check_state(op, "parameters", parameters[i], parameters[i]);
    check_state(op, "gradients", gradients[i], parameters[i]);
    check_state(op, "momenta", momenta[i], parameters[i]);
  }
  const Pipeline pipeline = metal::pipeline("sgd_step");
  const float rates[2] = {static_cast<float>(rate), static_cast<float>(momentum)};
  metal::encode([&](Encoder encoder) {
    [encoder setComputePipelineState:pipeline];
    [encoder setBytes:rates length:sizeof rates atIndex:3];
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto count = static_cast<uint32_t>(parameters[i].numel());
      if (count == 0) continue;
      metal::bind(encoder, parameters[i], 0);
      metal::bind(encoder, gradients[i], 1);
      metal::bind(encoder, momenta[i], 2);
      metal::bind_value(encoder, count, 4);
      [encoder dispatchThreads:MTLSizeMake(count, 1, 1)
          threadsPerThreadgroup:MTLSizeMake(metal::group_size(pipeline, 256), 1, 1)];
    }
  });
}

at::Tensor gated_silu(const at::Tensor& x, const at::Tensor& gate) {
  const char* op = "patterns::gated_silu";
  check_state(op, "x", x, x);
  check_state(op, "gate", gate, x);
  const at::Tensor out = at::empty_like(x);
  const auto count = static_cast<uint32_t>(x.numel());
  if (count == 0) return out;
  const Pipeline pipeline = metal::pipeline("gated_silu");
  metal::encode([&](Encoder encoder) {
    [encoder setComputePipelineState:pipeline];
    metal::bind(encoder, x, 0);
    metal::bind(encoder, gate, 1);
    metal::bind(encoder, out, 2);
    metal::bind_value(encoder, count, 3);
    [encoder dispatchThreads:MTLSizeMake(count, 1, 1)
        threadsPerThreadgroup:MTLSizeMake(metal::group_size(pipeline, 256), 1, 1)];
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> gated_silu_backward(const at::Tensor& grad, const at::Tensor& x,
                                                       const at::Tensor& gate) {
  const char* op = "patterns::gated_silu_backward";
  check_state(op, "grad", grad, x);
  check_state(op, "x", x, x);
  check_state(op, "gate", gate, x);
  const at::Tensor grad_x = at::empty_like(x);
  const at::Tensor grad_gate = at::empty_like(x);
  const auto count = static_cast<uint32_t>(x.numel());
  if (count == 0) return {grad_x, grad_gate};
  const Pipeline pipeline = metal::pipeline("gated_silu_backward");
  metal::encode([&](Encoder encoder) {
    [encoder setComputePipelineState:pipeline];
    metal::bind(encoder, grad, 0);
    metal::bind(encoder, x, 1);
    metal::bind(encoder, gate, 2);
    metal::bind(encoder, grad_x, 3);
    metal::bind(encoder, grad_gate, 4);
    metal::bind_value(encoder, count, 5);
    [encoder dispatchThreads:MTLSizeMake(count, 1, 1)
        threadsPerThreadgroup:MTLSizeMake(metal::group_size(pipeline, 256), 1, 1)];
  });
  return {grad_x, grad_gate};
}

}  // namespace

TORCH_LIBRARY(patterns, library) {
  library.def("scale(Tensor x, Tensor? bias, float factor, bool clamped) -> Tensor");
  library.def("row_sums(Tensor x) -> Tensor");
  library.def("copy_blocks(Tensor(a!) cache, int[] sources, int[] targets) -> ()");
  library.def(
      "sgd_step(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] momenta, float rate, "
      "float momentum) -> ()");
  library.def("gated_silu(Tensor x, Tensor gate) -> Tensor");
  library.def("gated_silu_backward(Tensor grad, Tensor x, Tensor gate) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(patterns, MPS, library) {
  library.impl("scale", &scale);
  library.impl("row_sums", &row_sums);
  library.impl("copy_blocks", &copy_blocks);
  library.impl("sgd_step", &sgd_step);
  library.impl("gated_silu", &gated_silu);
  library.impl("gated_silu_backward", &gated_silu_backward);
}
