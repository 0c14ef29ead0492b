// The virtual mps device for a Linux build of torch: what Python calls.
//
// Nothing happens when the library is loaded. Functions return nullptr, or a message when torch
// differs from what this was written for; the message is valid until the next call.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <exception>
#include <sstream>
#include <string>

#include "guard.h"
#include "hooks.h"
#include "registration.h"

namespace anymetal {
namespace {

template <typename Function>
const char* reported(Function function) {
  static std::string message;
  try {
    function();
    return nullptr;
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message.c_str();
}

// torch runs backward passes of a device in a thread, which it starts at the first backward pass of
// the process.
class BackwardThread : public torch::autograd::Engine {
 public:
  static bool is_there() {
    auto& engine = torch::autograd::Engine::get_default_engine();
    return !(engine.*(&BackwardThread::device_ready_queues_)).empty();
  }

  // If the first backward pass has been before there was this device, torch starts none any more.
  static void start() {
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.initialize_device_threads_pool();
    if (!is_there()) (engine.*(&BackwardThread::start_device_threads))();
  }

  // A pass that the program has waited for may still be cleaning up in its thread, and needs Python
  // for it. When another pass has gone through, it has ended.
  static void settle() {
    if (!is_there()) return;
    at::AutoGradMode enabled(true);
    const at::Tensor leaf = at::zeros({1}, kDevice).requires_grad_();
    torch::autograd::backward({leaf.sum()}, {});
  }
};

// Lines of three words: an operator, what a Mac calls it, and whether it falls back there.
MissingOperators parse_missing(const char* text) {
  MissingOperators operators;
  std::istringstream lines(text);
  std::string name;
  MissingOperator missing;
  while (lines >> name >> missing.reported >> missing.falls_back) operators[name] = missing;
  return operators;
}

}  // namespace
}  // namespace anymetal

#define ANYMETAL_EXPORT __attribute__((visibility("default")))

extern "C" {

// `missing`: operators that MPS lacks, one a line.
ANYMETAL_EXPORT const char* anymetal_device_install(const char* missing) {
  using namespace anymetal;
  return reported([&] {
    TORCH_CHECK(!at::detail::getMPSHooks().hasMPS(), "this torch has an MPS backend already");
    c10::SetAllocator(c10::DeviceType::MPS, &allocator, 0);
    install_hooks();
    install_guard();
    register_library();
    register_fallback();
    missing_operators = parse_missing(missing);
    register_operators();
  });
}

ANYMETAL_EXPORT const char* anymetal_device_start_autograd() {
  return anymetal::reported([] { anymetal::BackwardThread::start(); });
}

ANYMETAL_EXPORT const char* anymetal_device_settle_autograd() {
  return anymetal::reported([] { anymetal::BackwardThread::settle(); });
}

ANYMETAL_EXPORT void anymetal_device_set_missing(int policy) {
  anymetal::missing_policy = static_cast<anymetal::Missing>(policy);
}

ANYMETAL_EXPORT void anymetal_device_configure(int asynchronous, anymetal::DrainQueue drain) {
  anymetal::stream.configure(asynchronous != 0, drain);
}

// Copies to the device that were put off; before a kernel is queued that may read them.
ANYMETAL_EXPORT void anymetal_device_copy_to_device() { anymetal::stream.copy_to_device(); }

ANYMETAL_EXPORT void anymetal_device_set_queued(int queued) {
  anymetal::stream.set_queued(queued != 0);
}

// For the runtime of Objective-C++ extensions: the memory behind an address, kept until it is let
// go; whether its tensor is gone; what an address is (1 memory of a tensor, 2 of one that has been
// freed, 0 something else).
ANYMETAL_EXPORT void* anymetal_device_hold(const void* address, size_t* bytes) {
  return anymetal::blocks.find(address, [&](anymetal::Block* block) {
    *bytes = block->bytes();
    return block->hold();
  });
}

ANYMETAL_EXPORT void anymetal_device_let_go(void* block) {
  static_cast<anymetal::Block*>(block)->let_go();
}

ANYMETAL_EXPORT int anymetal_device_is_freed(void* block) {
  return static_cast<anymetal::Block*>(block)->is_freed();
}

ANYMETAL_EXPORT int anymetal_device_known(const void* address) {
  if (anymetal::blocks.find(address, [](anymetal::Block*) { return true; })) return 1;
  return anymetal::blocks.is_retired(address) ? 2 : 0;
}

ANYMETAL_EXPORT const void* anymetal_device_containing(const void* address) {
  const auto* place = static_cast<const char*>(address);
  return anymetal::blocks.containing([&](const anymetal::Block* block) {
    const auto* begin = static_cast<const char*>(block->data());
    return begin <= place && place < begin + block->bytes();
  });
}

ANYMETAL_EXPORT void anymetal_device_set_encoding(int encoding) {
  anymetal::stream.set_encoding(encoding != 0);
}

ANYMETAL_EXPORT void anymetal_device_set_extension(const anymetal::ExtensionHooks* hooks) {
  anymetal::blocks.quarantine();
  anymetal::extension = *hooks;
}

}  // extern "C"
