// The current device and stream, of which there is one each, and events of torch.Event("mps").
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device.h"
#include "hooks.h"
#include "stream.h"

namespace anymetal {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::DeviceType::MPS;

  c10::DeviceType type() const override { return static_type; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() <= 0, "there is one mps device, not ", device);
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}

  c10::Stream getStream(c10::Device) const override { return only_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return only_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return only_stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return only_stream(); }
  bool queryStream(const c10::Stream&) const override { return stream.finished(); }
  void synchronizeStream(const c10::Stream&) const override { stream.synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { stream.synchronize(); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    stream.flush();
    if (*event == nullptr) *event = new double;
    *static_cast<double*>(*event) = milliseconds_now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return stream.finished(); }
  void synchronizeEvent(void*) const override { stream.synchronize(); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "both events must be recorded before elapsed_time()");
    return *static_cast<double*>(end) - *static_cast<double*>(start);
  }

 private:
  static c10::Stream only_stream() { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};

inline void install_guard() {
  static const c10::impl::DeviceGuardImplRegistrar registrar(Guard::static_type, new Guard);
}

}  // namespace anymetal
