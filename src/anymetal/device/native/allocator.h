// Memory of the device: blocks of host memory, counted as long as anything points into them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "blocks.h"
#include "device.h"
#include "extension.h"

namespace anymetal {

// Bytes in use, the most there were since the cache was emptied, and the most there may be.
class Ledger {
 public:
  void take(size_t bytes) {
    const size_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const size_t limit = limit_.load(std::memory_order_relaxed);
    if (C10_UNLIKELY(limit != 0 && now > limit)) refuse(bytes, now - bytes, limit);
    size_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

  void give(size_t bytes) { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }

  size_t in_use() const { return in_use_.load(std::memory_order_relaxed); }

  // What a pool that never returns memory to the system would hold.
  size_t held() const { return peak_.load(std::memory_order_relaxed); }

  void forget_peak() { peak_.store(in_use(), std::memory_order_relaxed); }

  // Metal recommends about three quarters of an Apple machine's memory.
  size_t recommended() const {
    static const size_t bytes =
        size_t(sysconf(_SC_PHYS_PAGES)) / 4 * 3 * size_t(sysconf(_SC_PAGESIZE));
    return bytes;
  }

  void set_fraction(double fraction) {
    limit_.store(size_t(fraction * double(recommended())), std::memory_order_relaxed);
  }

 private:
  [[noreturn]] void refuse(size_t bytes, size_t in_use, size_t limit) {
    give(bytes);
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "MPS backend out of memory (MPS allocated: ", megabytes(in_use),
        " MiB, max allowed: ", megabytes(limit), " MiB). Tried to allocate ", megabytes(bytes),
        " MiB. Raise the limit with torch.mps.set_per_process_memory_fraction.");
    std::abort();  // TORCH_CHECK_WITH has thrown
  }

  static double megabytes(size_t bytes) { return double(bytes) / 1024 / 1024; }

  std::atomic<size_t> in_use_{0};
  std::atomic<size_t> peak_{0};
  std::atomic<size_t> limit_{0};
};

inline Ledger ledger;

// Memory that several storages may point to: one of the device, and aliases of it on the host.
class Block {
 public:
  Block(c10::DataPtr memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {
    ledger.take(bytes_);
    blocks.add(memory_.get(), this);
  }

  void retain() { users_.fetch_add(1, std::memory_order_relaxed); }

  void release() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      ledger.give(bytes_);
      blocks.remove(memory_.get(), this);
      blocks.retire(std::move(memory_), bytes_);
      delete this;
    }
  }

  // A command encoder's use: it keeps the memory, and is no tensor. False where all is over.
  bool hold() {
    uint32_t users = users_.load();
    do {
      if (users == 0) return false;
    } while (!users_.compare_exchange_weak(users, users + 1));
    holders_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  void let_go() {
    holders_.fetch_sub(1, std::memory_order_relaxed);
    release();
  }

  bool is_freed() const { return users_.load() == holders_.load(); }

  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  c10::DataPtr memory_;
  size_t bytes_;
  std::atomic<uint32_t> users_{1};
  std::atomic<uint32_t> holders_{0};  // of the users
};

inline void release_block(void* block) { static_cast<Block*>(block)->release(); }

// Make memory that a CPU kernel allocated the device's.
inline c10::DataPtr adopt(c10::DataPtr memory, size_t bytes) {
  void* data = memory.get();
  if (data == nullptr) return {nullptr, kDevice};
  return {data, new Block(std::move(memory), bytes), &release_block, kDevice};
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release_block, kDevice};
    if (C10_UNLIKELY(extension.allocating != nullptr)) extension.allocating();
    return adopt(c10::GetCPUAllocator()->allocate(bytes), bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

inline DeviceAllocator allocator;

}  // namespace anymetal
