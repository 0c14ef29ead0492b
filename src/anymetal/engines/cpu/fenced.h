// Memory of the runtime that kernels write to: threadgroup memory, and what threads keep at
// barriers.
//
// It lies apart from the program's own memory, and what lies around it can be read but not written.
// A kernel that writes behind the end of a threadgroup array is stopped there (faults.h); out of
// malloc the same write would change whatever the program keeps behind it, and the program would
// die somewhere else, much later. Reads past the end do no harm, as on a GPU.
#pragma once

#include "system.h"

constexpr unsigned long kFenceBytes = 4ul << 20;  // on either side
constexpr unsigned long kLargestPage = 64ul << 10;

struct FencedMemory {
  char* start;  // of what was asked for last; it ends at the fence, but for its alignment

  // Room for `size` bytes that begin at a multiple of `alignment`, a power of two. What was there
  // before is lost.
  bool reserve(unsigned long size, unsigned long alignment) {
    if (!low_ || capacity_ < size + alignment) {
      release();
      if (!map(size + alignment)) return false;
    }
    unsigned long end = (unsigned long)(low_ + kFenceBytes + capacity_);
    start = (char*)((end - size) & ~(alignment - 1));
    return true;
  }

  void release() {
    if (low_) munmap(low_, capacity_ + 2 * kFenceBytes);
    *this = {};
  }

  // Whether an address is in one of the fences.
  bool has_fence_at(const char* address) const {
    if (!low_ || address < low_) return false;
    unsigned long offset = (unsigned long)(address - low_);
    return offset < kFenceBytes ||
           (offset >= kFenceBytes + capacity_ && offset < 2 * kFenceBytes + capacity_);
  }

 private:
  bool map(unsigned long size) {
    unsigned long whole = (size + kLargestPage - 1) / kLargestPage * kLargestPage;
    void* place = mmap(nullptr, whole + 2 * kFenceBytes, kReadAndWrite, kNewMemory, -1, 0);
    if (place == (void*)-1) return false;
    low_ = (char*)place;
    capacity_ = whole;
    mprotect(low_, kFenceBytes, kRead);
    mprotect(low_ + kFenceBytes + capacity_, kFenceBytes, kRead);
    return true;
  }

  char* low_;
  unsigned long capacity_;
};
