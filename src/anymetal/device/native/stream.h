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

#include "extension.h"

namespace anymetal {

// Ends queued kernels; with `synchronize` it returns what they reported, or nullptr.
using DrainQueue = const char* (*)(int synchronize);

// What the host sees of a storage through an alias: a copy that is renewed when it synchronizes.
// The memory of the alias owns it; it is gone when the program has dropped the alias.
class HostView {
 public:
  explicit HostView(at::Tensor bytes)
      : device_(std::move(bytes)),
        visible_(begin(), begin() + device_.nbytes()),
        before_(visible_) {}

  // Carries what the program wrote to the device, and what the device has to the program.
  void renew() {
    char* real = begin();
    for (size_t i = 0; i < before_.size(); ++i) {
      if (visible_[i] != before_[i]) real[i] = visible_[i];
    }
    visible_.assign(real, real + before_.size());  // the size is the same, and so is the address
    before_ = visible_;
  }

  static c10::DataPtr memory(const std::shared_ptr<HostView>& view) {
    return {view->visible_.data(), new std::shared_ptr<HostView>(view), &forget, c10::kCPU};
  }

 private:
  static void forget(void* owner) { delete static_cast<std::shared_ptr<HostView>*>(owner); }

  char* begin() const { return static_cast<char*>(device_.mutable_data_ptr()); }

  at::Tensor device_;  // bytes of the device, as a tensor of the host
  std::vector<char> visible_, before_;
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

  // An extension has torch's command encoder open.
  void set_encoding(bool encoding) { encoding_.store(encoding, std::memory_order_release); }

  bool idle() const {
    return !queued_.load(std::memory_order_acquire) && !late_.load(std::memory_order_acquire) &&
           !encoding_.load(std::memory_order_acquire);
  }

  // Whether all work is done; the host may still have to look again at what it sees.
  bool finished() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !queued_.load(std::memory_order_acquire) && to_host_.empty() && to_device_.empty();
  }

  void flush() {
    if (C10_LIKELY(idle())) return;
    if (encoding_) extension.before_operator();
    drain(false);
    copy_to_device();
  }

  void synchronize() {
    if (C10_LIKELY(idle())) return;
    if (encoding_) extension.before_operator();
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

  void watch(const std::shared_ptr<HostView>& view) {
    std::lock_guard<std::mutex> lock(mutex_);
    views_.push_back(view);
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
      std::erase_if(views_, [](const auto& view) { return view.expired(); });
      for (const auto& view : views_) {
        if (const auto alive = view.lock()) alive->renew();
      }
      late_.store(!to_device_.empty() || !views_.empty(), std::memory_order_release);
    }
    run(std::move(copies));
  }

  bool asynchronous_ = false;
  DrainQueue drain_ = nullptr;
  std::atomic<bool> queued_{false};
  std::atomic<bool> late_{false};
  std::atomic<bool> encoding_{false};
  std::mutex mutex_;
  std::vector<Copy> to_host_, to_device_;
  std::vector<std::weak_ptr<HostView>> views_;
};

// Never destroyed: threads of the program may still wait when the process ends.
inline Stream& stream = *new Stream;

}  // namespace anymetal
