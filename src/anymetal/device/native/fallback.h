// How an operator runs: its CPU kernel, on host twins of the device's tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <string>
#include <unordered_set>

#include "generator.h"
#include "stream.h"
#include "twins.h"

namespace anymetal {

// Where a Mac waits for the GPU besides copies: the host needs the result to go on.
inline bool synchronizes(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names = {
      "aten::_local_scalar_dense", "aten::item",       "aten::equal",    "aten::nonzero",
      "aten::masked_select",       "aten::_unique",    "aten::_unique2", "aten::unique_dim",
      "aten::unique_consecutive",  "aten::is_nonzero", "aten::bincount", "aten::repeat_interleave",
  };
  return names.count(op.operator_name().name) != 0;
}

inline void wait_before(const c10::OperatorHandle& op) {
  if (C10_LIKELY(stream.idle())) return;
  if (synchronizes(op)) {
    stream.synchronize();
  } else {
    stream.flush();
  }
}

// Operators that take tensors of both devices, as they do on a Mac.
inline bool mixes_devices(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names = {
      "aten::copy_",
      "aten::copy",
      "aten::_copy_from",
      "aten::index",
      "aten::_unsafe_index",
      "aten::index_put",
      "aten::index_put_",
      "aten::_index_put_impl_",
      "aten::_unsafe_index_put",

      "aten::_assert_tensor_metadata",
      "aten::_ctc_loss",
      "aten::_ctc_loss_backward",
  };
  return names.count(op.operator_name().name) != 0;
}

// One call: its arguments on their way to the CPU kernel, and its results on their way back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(stack) {}

  void run() {
    wait_before(op_);
    take_arguments();
    check_devices();
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_);
    twins_.write_back();
    if (wants_device()) return_results();
  }

 private:
  void take_arguments() {
    const auto& arguments = op_.schema().arguments();
    const size_t first = stack_->size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); ++i) {
      take(arguments[i], (*stack_)[first + i]);
    }
  }

  void take(const c10::Argument& argument, c10::IValue& value) {
    if (value.isTensor()) {
      value = to_host(value.toTensor());
    } else if (value.isNone()) {
      if (argument.name() == "generator") value = host_generator(default_generator());
    } else if (value.isTensorList()) {
      value = to_host(value.toTensorList());
    } else if (value.isOptionalTensorList()) {
      value = to_host(value.toOptionalTensorList());
    } else if (value.isDevice()) {
      names_device_ = true;
      if (value.toDevice().is_mps()) {
        device_is_ours_ = true;
        value = kHost;
      }
    } else if (value.isGenerator()) {
      const at::Generator generator = value.toGenerator();
      if (generator.device().is_mps()) value = host_generator(generator);
    }
  }

  at::Tensor to_host(const at::Tensor& tensor) {
    // A number in a tensor may live anywhere.
    if (tensor.defined() && tensor.dim() > 0) note_device(tensor.device());
    return twins_.to_host(tensor);
  }

  c10::List<at::Tensor> to_host(const c10::List<at::Tensor>& list) {
    c10::List<at::Tensor> twins;
    twins.reserve(list.size());
    for (const at::Tensor& tensor : list) twins.push_back(to_host(tensor));
    return twins;
  }

  c10::List<std::optional<at::Tensor>> to_host(const c10::List<std::optional<at::Tensor>>& list) {
    c10::List<std::optional<at::Tensor>> twins;
    twins.reserve(list.size());
    for (const std::optional<at::Tensor>& tensor : list) {
      twins.push_back(tensor ? std::optional<at::Tensor>(to_host(*tensor)) : std::nullopt);
    }
    return twins;
  }

  void note_device(c10::Device device) {
    if (!first_device_) {
      first_device_ = device;
    } else if (C10_UNLIKELY(device.type() != first_device_->type())) {
      other_device_ = device;
    }
  }

  void check_devices() const {
    if (C10_LIKELY(!other_device_) || mixes_devices(op_)) return;
    TORCH_CHECK(false,
                "Expected all tensors to be on the same device, but found at least two "
                "devices, ",
                *first_device_, " and ", *other_device_, "! (when calling ", op_.operator_name(),
                ")");
  }

  bool wants_device() const { return names_device_ ? device_is_ours_ : twins_.any_on_device(); }

  void return_results() {
    const size_t count = op_.schema().returns().size();
    for (size_t i = stack_->size() - count; i < stack_->size(); ++i) {
      c10::IValue& value = (*stack_)[i];
      if (value.isTensor()) {
        value = twins_.to_device(std::move(value).toTensor());
      } else if (value.isTensorList()) {
        value = to_device(std::move(value).toTensorList());
      }
    }
  }

  c10::List<at::Tensor> to_device(c10::List<at::Tensor> list) {
    for (size_t i = 0; i < list.size(); ++i) list.set(i, twins_.to_device(list.extract(i)));
    return list;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  Twins twins_;
  bool names_device_ = false;
  bool device_is_ours_ = false;
  std::optional<c10::Device> first_device_, other_device_;
};

inline void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet,
                        torch::jit::Stack* stack) {
  Call(op, stack).run();
}

// For views: the CPU kernel keeps the tensor's storage and keys, so it can take the tensor itself.
inline void run_on_itself(const c10::OperatorHandle& op, c10::DispatchKeySet,
                          torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

}  // namespace anymetal
