// Random numbers of the device: torch's CPU generator under the device's name.
//
// The stream of a seed is that of the CPU, not of a Mac's GPU: a program compared between the two
// devices then draws the same numbers.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "device.h"

namespace anymetal {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(at::Generator host)
      : GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::MPS)),
        host_(std::move(host)) {}

  static c10::DeviceType device_type() { return c10::DeviceType::MPS; }

  const at::Generator& host() const { return host_; }

  void set_current_seed(uint64_t seed) override { host_.set_current_seed(seed); }
  uint64_t current_seed() const override { return host_.current_seed(); }
  uint64_t seed() override { return host_.seed(); }

  void set_offset(uint64_t) override {
    TORCH_CHECK(false, "the generator of the virtual mps device has no offset");
  }
  uint64_t get_offset() const override {
    TORCH_CHECK(false, "the generator of the virtual mps device has no offset");
  }

  void set_state(const c10::TensorImpl& state) override {
    auto* shared = const_cast<c10::TensorImpl*>(&state);
    host_.set_state(at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(shared)));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host_.get_state().getIntrusivePtr();
  }

 private:
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(host_.clone()); }

  at::Generator host_;
};

inline at::Generator new_generator() {
  auto host = at::detail::createCPUGenerator(c10::default_rng_seed_val);
  return at::make_generator<DeviceGenerator>(std::move(host));
}

// Never destroyed: torch hands out references to it until the process ends.
inline const at::Generator& default_generator() {
  static const auto* generator = new at::Generator(new_generator());
  return *generator;
}

inline at::Generator host_generator(const at::Generator& generator) {
  return static_cast<const DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->host();
}

}  // namespace anymetal
