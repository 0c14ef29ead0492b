// Work that is not done yet, and the points at which a program waits for it.
//
// Operators run when they are called. What can be late: kernels that Python has queued (and errors
// they reported), copies that were asked not to block, and what the host sees through an alias.
//
//   flush        before an operator: queued kernels end, their results are there for the device
//   synchronize  what a Mac waits at: also the host sees everything, and errors are raised
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/copy.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace anymetal {

// Ends queued kernels; with `synchronize` it returns what they reported, or nullptr.
using DrainQueue = const char* (*)(int synchronize);

// What the host sees of a storage through an alias: a copy that is renewed when it synchronizes.
struct HostView {
  at::Tensor device;         // bytes of the device, as a tensor of the host
  at::Tensor visible;        // the alias that the program holds
  std::vector<char> before;  // what was visible at the last synchronization

  void renew() {
    char* shown = static_cast<char*>(visible.mutable_data_ptr());
    char* real = static_cast<char*>(device.mutable_data_ptr());
    for (size_t i = 0; i < before.size(); ++i) {
      if (shown[i] != before[i]) real[i] = shown[i];  // the program wrote here
    }
    std::memcpy(shown, real, before.size());
    std::memcpy(before.data(), real, before.size());
  }
};

class Stream {
 public:
  bool asynchronous() const { return asynchronous_; }

  void configure(bool asynchronous, DrainQueue drain) {
    asynchronous_ = asynchronous;
    drain_ = drain;
  }

  // Python says that it has queued something, or that nothing is left.
  void set_queued(bool queued) { queued_.store(queued, std::memory_order_release); }

  bool idle() const {
    return !queued_.load(std::memory_order_acquire) && !late_.load(std::memory_order_acquire);
  }

  void flush() {
    if (C10_LIKELY(idle())) return;
    drain(false);
    copy_to_device();
  }

  void synchronize() {
    if (C10_LIKELY(idle())) return;
    const std::string report = drain(true);
    copy_to_device();
    show_to_host();
    if (!report.empty()) {
      throw c10::AcceleratorError({__func__, __FILE__, uint32_t(__LINE__)}, -1, report);
    }
  }

  // A copy to the host that does not block: what it reads now is seen when it synchronizes.
  void copy_later_to_host(at::Tensor to, at::Tensor from) {
    std::lock_guard<std::mutex> lock(mutex_);
    to_host_.push_back({std::move(to), std::move(from)});
    late_.store(true, std::memory_order_release);
  }

  // A copy to the device that does not block: what it reads is what is there at the next operator.
  void copy_later_to_device(at::Tensor to, at::Tensor from) {
    std::lock_guard<std::mutex> lock(mutex_);
    to_device_.push_back({std::move(to), std::move(from)});
    late_.store(true, std::memory_order_release);
  }

  void watch(at::Tensor device, const at::Tensor& visible) {
    const char* bytes = static_cast<const char*>(visible.const_data_ptr());
    auto view = std::make_unique<HostView>();
    view->before.assign(bytes, bytes + visible.nbytes());
    view->device = std::move(device);
    view->visible = visible;
    std::lock_guard<std::mutex> lock(mutex_);
    views_.push_back(std::move(view));
    late_.store(true, std::memory_order_release);
  }

  void copy_to_device() {
    std::vector<Copy> copies;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      copies.swap(to_device_);
      late_.store(!to_host_.empty() || !views_.empty(), std::memory_order_release);
    }
    run(std::move(copies));
  }

 private:
  struct Copy {
    at::Tensor to, from;
    void run() const {
      c10::impl::ExcludeDispatchKeyGuard plain(c10::autograd_dispatch_keyset);
      const_cast<at::Tensor&>(to).copy_(from);
    }
  };

  std::string drain(bool synchronize) {
    if (!queued_.load(std::memory_order_acquire) || drain_ == nullptr) return {};
    const char* report = drain_(synchronize);
    return report == nullptr ? std::string() : std::string(report);
  }

  static void run(std::vector<Copy> copies) {
    for (const Copy& copy : copies) copy.run();
  }

  void show_to_host() {
    std::vector<Copy> copies;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      copies.swap(to_host_);
      for (auto& view : views_) view->renew();
      // An alias that only this list still holds is seen by nobody.
      std::erase_if(views_, [](auto& view) { return view->visible.storage().use_count() == 1; });
      late_.store(!to_device_.empty() || !views_.empty(), std::memory_order_release);
    }
    run(std::move(copies));
  }

  bool asynchronous_ = false;
  DrainQueue drain_ = nullptr;
  std::atomic<bool> queued_{false};
  std::atomic<bool> late_{false};
  std::mutex mutex_;
  std::vector<Copy> to_host_, to_device_;
  std::vector<std::unique_ptr<HostView>> views_;
};

// Never destroyed: threads of the program may still wait when the process ends.
inline Stream& stream = *new Stream;

}  // namespace anymetal
