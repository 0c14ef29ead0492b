// The virtual mps device for a Linux build of torch: what Python calls.
//
// Nothing happens when the library is loaded. Functions return nullptr, or a message when torch
// differs from what this was written for; the message is valid until the next call.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/engine.h>

#include <exception>
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

// torch starts a thread for each device at the first backward pass of the process. If that has
// been before there was this device, its thread is started here.
class EngineAccess : public torch::autograd::Engine {
 public:
  static void start_threads() {
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.initialize_device_threads_pool();
    if ((engine.*(&EngineAccess::device_ready_queues_)).empty()) {
      (engine.*(&EngineAccess::start_device_threads))();
    }
  }
};

Names split(const char* text) {
  Names names;
  std::string name;
  for (; *text != '\0'; ++text) {
    if (*text != '\n') {
      name += *text;
    } else if (!name.empty()) {
      names.insert(std::move(name));
      name.clear();
    }
  }
  if (!name.empty()) names.insert(std::move(name));
  return names;
}

}  // namespace
}  // namespace anymetal

extern "C" {

// `missing`: names of operators that MPS lacks, one a line.
const char* anymetal_device_install(const char* missing) {
  using namespace anymetal;
  return reported([&] {
    TORCH_CHECK(!at::detail::getMPSHooks().hasMPS(), "this torch has an MPS backend already");
    c10::SetAllocator(c10::DeviceType::MPS, &allocator, 0);
    install_hooks();
    install_guard();
    register_library();
    register_fallback();
    register_operators(split(missing));
  });
}

const char* anymetal_device_start_autograd() {
  return anymetal::reported([] { anymetal::EngineAccess::start_threads(); });
}

void anymetal_device_set_missing(int policy) {
  anymetal::missing_policy = static_cast<anymetal::Missing>(policy);
}

void anymetal_device_configure(int asynchronous, anymetal::DrainQueue drain) {
  anymetal::stream.configure(asynchronous != 0, drain);
}

void anymetal_device_set_queued(int queued) { anymetal::stream.set_queued(queued != 0); }

}  // extern "C"
