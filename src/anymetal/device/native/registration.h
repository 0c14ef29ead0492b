// Puts the device's kernels into torch's dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "fallback.h"
#include "kernels.h"
#include "missing.h"

namespace anymetal {

// What decides how an operator is registered.
struct Traits {
  bool takes_tensors = false;
  bool takes_device = false;
  bool is_view = false;

  explicit Traits(const c10::FunctionSchema& schema) {
    for (const c10::Argument& argument : schema.arguments()) {
      const std::string type = argument.type()->str();
      takes_tensors |= type.find("Tensor") != std::string::npos;
      takes_device |= type.find("Device") != std::string::npos;
      is_view |= argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
    }
  }
};

inline bool has_explicit_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Composites of which a part of the result is on the host, wherever their arguments are.
inline bool returns_host_tensors(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::_pack_padded_sequence";
}

inline bool is_torchs(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.rfind("aten::", 0) == 0 || name.rfind("prims::", 0) == 0;
}

// Whether an operator needs a kernel of ours. Composites run as they are when they only allocate
// or make views, or are a program's own; others ask torch for kernels by device, which the CPU
// kernel does not.
inline bool needs_kernel(const c10::OperatorHandle& op, const Traits& traits) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::MPS)) return false;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return true;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return false;
  return is_torchs(op) && has_explicit_composite(op) && traits.takes_tensors &&
         !traits.takes_device && !traits.is_view && !op.hasTag(at::Tag::inplace_view) &&
         !returns_host_tensors(op);
}

inline c10::KernelFunction kernel_for(const std::string& name, const Traits& traits) {
  if (missing_operators.count(name) != 0) {
    return c10::KernelFunction::makeFromBoxedFunction<&run_missing>();
  }
  if (traits.is_view) return c10::KernelFunction::makeFromBoxedFunction<&run_on_itself>();
  return c10::KernelFunction::makeFromBoxedFunction<&run_on_host>();
}

// Every operator of the moment; one that is defined later takes the fallback below.
inline void register_operators() {
  static auto& handles = *new std::vector<c10::RegistrationHandleRAII>;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& operator_name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(operator_name);
    if (!op) continue;
    const Traits traits(op->schema());
    if (!needs_kernel(*op, traits)) continue;
    auto kernel = kernel_for(c10::toString(operator_name), traits);
    handles.push_back(dispatcher.registerImpl(operator_name, c10::DispatchKey::MPS,
                                              std::move(kernel), std::nullopt, nullptr,
                                              "anymetal virtual mps device"));
  }
}

inline torch::Library& kept(torch::Library* library) { return *library; }

inline void register_fallback() {
  static auto& any = kept(
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::MPS, __FILE__, __LINE__));
  any.fallback(torch::CppFunction::makeFromBoxedFunction<&run_missing>());
}

inline void register_library() {
  using torch::Library;
  static auto& device =
      kept(new Library(Library::IMPL, "aten", c10::DispatchKey::MPS, __FILE__, __LINE__));
  static auto& autograd =
      kept(new Library(Library::IMPL, "aten", c10::DispatchKey::AutogradMPS, __FILE__, __LINE__));
  static auto& ours =
      kept(new Library(Library::DEF, "anymetal_device", std::nullopt, __FILE__, __LINE__));
  register_kernels(device);
  register_autograd_kernels(autograd);
  ours.def("see_from_host(Tensor bytes) -> Tensor");
  ours.impl("see_from_host", c10::DispatchKey::MPS, TORCH_FN(see_from_host));
}

}  // namespace anymetal
