// Which work comes before which: torch's stream is one timeline, every other command buffer's queue
// another. Events, commits to one queue and waits of the host order them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace anymetal {

constexpr int kStream = 0;

class Order {
 public:
  int new_timeline() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ++last_timeline_;
  }

  // One access; what it conflicts with, if anything.
  std::optional<std::string> touch(int timeline, const void* memory, bool writes,
                                   const std::string& what) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t now = ++clocks_[timeline][timeline];
    std::optional<std::string> conflict;
    auto& accesses = accesses_[memory];
    for (const Access& other : accesses) {
      if (other.timeline == timeline || !(other.writes || writes)) continue;
      if (known(timeline, other.timeline) < other.time) conflict = other.what;
    }
    std::erase_if(accesses, [&](const Access& other) {
      return other.timeline == timeline && (writes || !other.writes);
    });
    accesses.push_back({timeline, now, writes, what});
    others_write_ |= writes && timeline != kStream;
    if (accesses_.size() > kMost) accesses_.clear();
    return conflict;
  }

  // What others have written that the stream does not wait for.
  std::vector<std::string> unseen_by_stream() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> found;
    if (!others_write_) return found;
    for (auto& [memory, accesses] : accesses_) {
      std::erase_if(accesses, [&](const Access& other) {
        const bool unseen = other.timeline != kStream && other.writes &&
                            known(kStream, other.timeline) < other.time;
        if (unseen) found.push_back(other.what);
        return unseen;
      });
    }
    others_write_ = false;
    return found;
  }

  void signal(int timeline, const void* event, uint64_t value) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (events_.size() > kMost) events_.clear();
    merge(events_[{event, value}], clocks_[timeline]);
  }

  void wait(int timeline, const void* event, uint64_t value) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, clock] : events_) {
      if (key.first == event && key.second >= value) merge(clocks_[timeline], clock);
    }
  }

  // Committed to a queue: before all that is committed there later.
  void commit(int timeline, const void* queue) {
    std::lock_guard<std::mutex> lock(mutex_);
    merge(queues_[queue], clocks_[timeline]);
  }

  void follow(int timeline, const void* queue) {
    std::lock_guard<std::mutex> lock(mutex_);
    merge(clocks_[timeline], queues_[queue]);
  }

  void host_waits_for(int timeline) {
    std::lock_guard<std::mutex> lock(mutex_);
    merge(host_, clocks_[timeline]);
  }

 private:
  using Clock = std::map<int, uint64_t>;
  struct Access {
    int timeline;
    uint64_t time;
    bool writes;
    std::string what;
  };
  static constexpr size_t kMost = 100000;

  static void merge(Clock& into, const Clock& from) {
    for (const auto& [timeline, time] : from) {
      uint64_t& known = into[timeline];
      if (known < time) known = time;
    }
  }

  uint64_t known(int timeline, int other) {
    return std::max(clocks_[timeline][other], host_[other]);
  }

  std::mutex mutex_;
  int last_timeline_ = kStream;
  bool others_write_ = false;  // since unseen_by_stream was asked
  std::map<int, Clock> clocks_;
  std::map<const void*, Clock> queues_;
  std::map<std::pair<const void*, uint64_t>, Clock> events_;
  std::map<const void*, std::vector<Access>> accesses_;
  Clock host_;
};

// Never destroyed: threads may still work when the process ends.
inline Order& order = *new Order;

}  // namespace anymetal
