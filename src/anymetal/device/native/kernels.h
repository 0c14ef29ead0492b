// The few operators that are not left to their CPU kernels: they allocate, copy between devices, or
// would ask torch for an MPS kernel that a Linux build does not have.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <limits>

#include "allocator.h"
#include "device.h"
#include "stream.h"
#include "twins.h"

namespace anymetal {

using OptionalTensor = std::optional<at::Tensor>;

constexpr c10::DispatchKeySet kDeviceKeys(c10::DispatchKey::MPS);
constexpr c10::DispatchKeySet kHostKeys(c10::DispatchKey::CPU);

inline c10::ScalarType checked_dtype(std::optional<c10::ScalarType> type) {
  const auto chosen = type.value_or(c10::typeMetaToScalarType(at::get_default_dtype()));
  check_dtype(chosen);
  return chosen;
}

inline at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> type,
                        std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>,
                        std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kDeviceKeys, checked_dtype(type), format);
}

inline at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                                std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                                std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kDeviceKeys,
                                           checked_dtype(type));
}

inline at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.is_mps() ? host_alias(tensor) : tensor;
}

inline at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  TORCH_CHECK_NOT_IMPLEMENTED(to.layout() == at::kStrided && from.layout() == at::kStrided,
                              "the virtual mps device copies dense tensors only");
  const bool within = to.is_mps() && from.is_mps();
  const bool late = non_blocking && !within && stream.asynchronous();
  if (within || late) {
    stream.flush();
  } else {
    stream.synchronize();  // a copy that blocks waits for everything before it, as on a Mac
  }
  at::Tensor target = on_host(to);
  const at::Tensor source = on_host(from);
  if (!late) {
    at::_ops::copy_::redispatch(kHostKeys, target, source, non_blocking);
  } else if (to.is_mps()) {
    stream.copy_later_to_device(std::move(target), source);
  } else {
    stream.copy_later_to_host(std::move(target), source.clone());
  }
  return to;
}

inline c10::Scalar item(const at::Tensor& tensor) {
  stream.synchronize();
  return at::_ops::_local_scalar_dense::redispatch(kHostKeys, tensor);
}

inline at::Tensor& set_to(at::Tensor& tensor, c10::Storage storage, int64_t offset,
                          at::IntArrayRef size, at::IntArrayRef stride) {
  TORCH_CHECK(storage.device() == tensor.device(),
              "Attempted to set the storage of a tensor on "
              "device \"",
              tensor.device(), "\" to a storage on different device \"", storage.device(), "\".");
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  if (stride.empty() && !size.empty()) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  return tensor;
}

inline at::Tensor& set_storage(at::Tensor& tensor, c10::Storage storage) {
  const auto count = int64_t(storage.nbytes() / tensor.element_size());
  return set_to(tensor, std::move(storage), 0, {count}, {1});
}

inline at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) {
  if (tensor.is_same(source)) return tensor;
  return set_to(tensor, source.storage(), source.storage_offset(), source.sizes(),
                source.strides());
}

inline at::Tensor& set_empty(at::Tensor& tensor) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, &allocator, /*resizable=*/true);
  return set_to(tensor, std::move(storage), 0, {0}, {1});
}

// What is added to the scores: a mask of bools lets through where it is true.
inline OptionalTensor added_mask(const OptionalTensor& mask, const at::Tensor& query) {
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool) return mask;
  const double hidden = -std::numeric_limits<double>::infinity();
  return at::zeros_like(*mask, query.scalar_type()).masked_fill_(mask->logical_not(), hidden);
}

// torch would choose among fused kernels of its own build; the plain formula is what MPS computes.
inline std::tuple<at::Tensor, at::Tensor> attention_for_mps(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const OptionalTensor& mask, double dropout, bool causal, const OptionalTensor& dropout_mask,
    std::optional<double> scale, bool grouped) {
  return at::_scaled_dot_product_attention_math(query, key, value, added_mask(mask, query), dropout,
                                                causal, dropout_mask, scale, grouped);
}

inline at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const OptionalTensor& mask, double dropout, bool causal,
                            std::optional<double> scale, bool grouped) {
  return std::get<0>(
      attention_for_mps(query, key, value, mask, dropout, causal, std::nullopt, scale, grouped));
}

// 0 is the plain formula.
inline int64_t attention_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const OptionalTensor&, double, bool, std::optional<double>, bool) {
  return 0;
}

// The bytes of a storage as the host sees them: at once, or when it next synchronizes.
inline at::Tensor see_from_host(const at::Tensor& bytes) {
  stream.synchronize();
  at::Tensor alias = host_alias(bytes);
  if (!stream.asynchronous()) return alias;
  const auto view = std::make_shared<HostView>(alias);
  stream.watch(view);
  auto storage =
      make_storage(HostView::memory(view), alias.storage().nbytes(), c10::GetCPUAllocator());
  return tensor_like(std::move(storage), c10::DispatchKey::CPU, alias);
}

inline void register_kernels(torch::Library& device) {
  device.impl("empty.memory_format", TORCH_FN(empty));
  device.impl("empty_strided", TORCH_FN(empty_strided));
  device.impl("copy_", TORCH_FN(copy));
  device.impl("_local_scalar_dense", TORCH_FN(item));
  device.impl("set_", TORCH_FN(set_empty));
  device.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  device.impl("set_.source_Storage", TORCH_FN(set_storage));
  device.impl("set_.source_Storage_storage_offset", TORCH_FN(set_to));
  device.impl("scaled_dot_product_attention", TORCH_FN(attention));
  device.impl("_scaled_dot_product_attention_math_for_mps", TORCH_FN(attention_for_mps));
  device.impl("_fused_sdp_choice", TORCH_FN(attention_choice));
}

// It is composite, and would ask before autograd which fused kernel there is.
inline void register_autograd_kernels(torch::Library& autograd) {
  autograd.impl("scaled_dot_product_attention", TORCH_FN(attention));
}

}  // namespace anymetal
