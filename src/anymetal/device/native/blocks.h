// Which addresses are memory of tensors: torch hands a storage's address out as its Metal buffer,
// and an extension's runtime must tell one from an object.
#pragma once

#include <c10/core/Allocator.h>

#include <deque>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace anymetal {

class Block;

class Blocks {
 public:
  void add(const void* address, Block* block) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    blocks_.emplace(address, block);
  }

  void remove(const void* address, const Block* block) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto [first, last] = blocks_.equal_range(address);
    for (auto place = first; place != last; ++place) {
      if (place->second != block) continue;
      blocks_.erase(place);
      return;
    }
  }

  // The block at an address that `take` takes; it may be about to be freed, and then does not.
  template <typename Take>
  Block* find(const void* address, Take take) const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto [first, last] = blocks_.equal_range(address);
    for (auto place = first; place != last; ++place) {
      if (take(place->second)) return place->second;
    }
    return nullptr;
  }

  template <typename Holds>
  const void* containing(Holds holds) const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    for (const auto& [address, block] : blocks_) {
      if (holds(block)) return address;
    }
    return nullptr;
  }

  // From now on memory that is freed stays for a while, so that its address is nobody else's.
  void quarantine() {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    quarantined_ = true;
  }

  void retire(c10::DataPtr memory, size_t bytes) {
    std::vector<c10::DataPtr> evicted;  // freed after the lock is: a storage may own a block
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (!quarantined_ || bytes > kMost || blocks_.count(memory.get()) != 0) return;
    retired_addresses_.insert(memory.get());
    retired_bytes_ += bytes;
    retired_.emplace_back(std::move(memory), bytes);
    while (retired_bytes_ > kMost) {
      retired_addresses_.erase(retired_.front().first.get());
      retired_bytes_ -= retired_.front().second;
      evicted.push_back(std::move(retired_.front().first));
      retired_.pop_front();
    }
  }

  bool is_retired(const void* address) const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    return retired_addresses_.count(address) != 0;
  }

 private:
  static constexpr size_t kMost = size_t(64) << 20;

  mutable std::shared_mutex mutex_;
  std::unordered_multimap<const void*, Block*> blocks_;
  bool quarantined_ = false;
  std::deque<std::pair<c10::DataPtr, size_t>> retired_;
  std::unordered_set<const void*> retired_addresses_;
  size_t retired_bytes_ = 0;
};

// Never destroyed: tensors outlive the end of the program's main function.
inline Blocks& blocks = *new Blocks;

}  // namespace anymetal
