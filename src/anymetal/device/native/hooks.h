// What torch asks an MPS backend: is there one, its generators, memory, events, profiler.
#pragma once

#include <ATen/detail/MPSHooksInterface.h>

#include <chrono>
#include <map>
#include <mutex>

#include "allocator.h"
#include "device.h"
#include "generator.h"
#include "stream.h"

namespace anymetal {

// The macOS whose Metal (3.2) our headers are.
constexpr unsigned kMacOsMajor = 15;
constexpr unsigned kMacOsMinor = 6;

inline double milliseconds_now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

// Events of torch.mps.Event: a number each, and when it was recorded.
class Events {
 public:
  uint32_t acquire() {
    std::lock_guard<std::mutex> lock(mutex_);
    times_[next_] = kNever;
    return next_++;
  }
  void release(uint32_t event) {
    std::lock_guard<std::mutex> lock(mutex_);
    times_.erase(event);
  }
  void record(uint32_t event) {
    std::lock_guard<std::mutex> lock(mutex_);
    times_[event] = milliseconds_now();
  }
  double elapsed(uint32_t start, uint32_t end) {
    std::lock_guard<std::mutex> lock(mutex_);
    return time(end) - time(start);
  }

 private:
  static constexpr double kNever = -1;

  double time(uint32_t event) const {
    const auto found = times_.find(event);
    TORCH_CHECK(found != times_.end() && found->second != kNever, "Event ", event,
                " was not recorded: record both events before elapsed_time()");
    return found->second;
  }

  std::map<uint32_t, double> times_;
  uint32_t next_ = 1;
  std::mutex mutex_;
};

inline Events& events = *new Events;

// No members: an object of this class can replace one of the base class where it lies.
struct Hooks final : at::MPSHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasMPS() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isOnMacOSorNewer(unsigned major, unsigned minor) const override {
    return major < kMacOsMajor || (major == kMacOsMajor && minor <= kMacOsMinor);
  }

  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }

  void deviceSynchronize() const override {
    if (extension.synchronizing) extension.synchronizing();
    stream.synchronize();
  }
  void commitStream() const override {
    if (extension.commit) extension.commit();
  }
  void* getCommandBuffer() const override {
    return extension.command_buffer ? extension.command_buffer() : nullptr;
  }
  void* getDispatchQueue() const override {
    return extension.dispatch_queue ? extension.dispatch_queue() : nullptr;
  }

  c10::Allocator* getMPSDeviceAllocator() const override { return &allocator; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  void emptyCache() const override { ledger.forget_peak(); }
  size_t getCurrentAllocatedMemory() const override { return ledger.in_use(); }
  size_t getDriverAllocatedMemory() const override { return ledger.held(); }
  size_t getRecommendedMaxMemory() const override { return ledger.recommended(); }
  // Not marked as an override: torch asks since 2.13.
  size_t getMaxBufferLength() const { return ledger.recommended() / 4 * 3; }
  void setMemoryFraction(double fraction) const override { ledger.set_fraction(fraction); }

  // There is no Instruments to trace for; the calls are accepted as on a Mac without it.
  void profilerStartTrace(const std::string&, bool) const override {}
  void profilerStopTrace() const override {}

  uint32_t acquireEvent(bool) const override { return events.acquire(); }
  void releaseEvent(uint32_t event) const override { events.release(event); }
  void recordEvent(uint32_t event) const override {
    stream.flush();
    events.record(event);
  }
  void waitForEvent(uint32_t) const override {}
  void synchronizeEvent(uint32_t) const override { stream.synchronize(); }
  bool queryEvent(uint32_t) const override { return stream.finished(); }
  double elapsedTimeOfEvents(uint32_t start, uint32_t end) const override {
    return events.elapsed(start, end);
  }
};

static_assert(sizeof(Hooks) == sizeof(at::MPSHooksInterface));

// torch makes its hooks object once. Where it did so already, ours takes the place of the empty
// one.
inline void install_hooks() {
  // Some versions of torch pass an argument.
  const auto create = [](auto&&...) -> std::unique_ptr<at::MPSHooksInterface> {
    return std::make_unique<Hooks>();
  };
  at::MPSHooksRegistry()->Register("MPSHooks", create);
  const at::MPSHooksInterface& current = at::detail::getMPSHooks();
  if (!current.hasMPS()) new (const_cast<at::MPSHooksInterface*>(&current)) Hooks();
  TORCH_CHECK(at::detail::getMPSHooks().hasMPS(), "torch does not use the hooks of the device");
}

}  // namespace anymetal
