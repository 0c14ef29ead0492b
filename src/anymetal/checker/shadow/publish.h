// Data that one thread publishes and another takes over: a fence, an atomic, and a fence again.
//
// A release is what a thread had done when it came to a fence: its own accesses up to there, those
// of its threadgroup up to the last barrier, and what it had itself taken over. An atomic write
// behind the fence attaches it to the atomic's address; an atomic read there and a fence behind it
// make the reader know it. An access that the reader knows is ordered before what it does now.
#pragma once

#include "state.h"
#include "system.h"

// One threadgroup's thread and the epochs up to which its release reaches.
struct Release {
  unsigned group, thread;
  unsigned fence;       // the thread's own accesses before
  unsigned barrier[2];  // those of the threadgroup, by memory
  unsigned memories;    // am_memory_flags of the fences; once more, if for all threadgroups
};

inline bool precedes(const Release& a, const Release& b) {
  return a.group != b.group ? a.group < b.group : a.thread < b.thread;
}

inline unsigned later(unsigned a, unsigned b) { return a > b ? a : b; }

constexpr unsigned kForAllGroups = 2;  // shift of the second am_memory_flags

// Releases in the order of threadgroup and thread, one for each.
struct Releases {
  Release* rows;
  unsigned count, capacity;

  void reserve(unsigned wanted) {
    if (wanted <= capacity) return;
    capacity = later(wanted, 2 * capacity);
    rows = (Release*)realloc(rows, capacity * sizeof(Release));
  }

  // Where the first release of `group` stands, or would.
  unsigned first_of(unsigned group) const {
    unsigned low = 0, high = count;
    while (low < high) {
      unsigned middle = (low + high) / 2;
      if (rows[middle].group < group)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  static void unite(Release& row, const Release& other) {
    row.fence = later(row.fence, other.fence);
    for (unsigned m = 0; m < 2; ++m) row.barrier[m] = later(row.barrier[m], other.barrier[m]);
    row.memories |= other.memories;
  }

  // Adds other releases, of which those for other memories than `memories` do not count.
  void join(const Release* others, unsigned more, unsigned memories = ~0u) {
    if (more == 0) return;
    reserve(count + more);
    unsigned to = count + more, own = count, left = more;
    while (left) {
      const Release& next = others[left - 1];
      if (own && precedes(next, rows[own - 1])) {
        rows[--to] = rows[--own];
      } else if (own && !precedes(rows[own - 1], next)) {
        rows[--to] = rows[--own];
        unite(rows[to], narrowed(others[--left], memories));
      } else {
        rows[--to] = narrowed(others[--left], memories);
      }
    }
    // Rows that met their equal leave a gap between the untouched ones and the merged ones.
    unsigned merged = count + more - to;
    for (unsigned i = 0; i < merged; ++i) rows[own + i] = rows[to + i];
    count = own + merged;
  }

  static Release narrowed(Release row, unsigned memories) {
    row.memories &= memories;
    return row;
  }

  // `needed` is the bit of Release::memories without which a release does not count.
  bool covers(unsigned group, unsigned thread, unsigned epoch, unsigned memory,
              unsigned needed) const {
    for (unsigned i = first_of(group); i < count && rows[i].group == group; ++i) {
      if (!(rows[i].memories & needed)) continue;
      if (epoch < rows[i].barrier[memory]) return true;
      if (rows[i].thread == thread && epoch < rows[i].fence) return true;
    }
    return false;
  }
};

// An atomic's address and what was published there.
struct Published {
  const char* address;
  Releases releases;
};

// What a thread of the running threadgroup knows, and what it has seen since its last fence.
struct Knowledge {
  Releases known;
  Releases released;  // as of its last fence
  const char** seen;  // addresses of atomics it has read
  unsigned seen_count, seen_capacity;
};

// The publications of one launch; there is one checked launch at a time.
struct Publications {
  Published* places;  // a hash table, in size a power of two
  unsigned used, size;
  Knowledge threads[AM_MAX_THREADS];
  Releases group;  // what all threads know since their last barrier

  void start_launch() {
    for (unsigned i = 0; i < size; ++i) free(places[i].releases.rows);
    free(places);
    places = nullptr;
    used = size = 0;
    start_group();
  }

  void start_group() {
    if (!active) return;
    for (Knowledge& thread : threads)
      thread.known.count = thread.released.count = thread.seen_count = 0;
    group.count = 0;
    active = false;
  }

  // Behind a barrier all threads of the threadgroup know what one of them did.
  void meet() {
    if (!active) return;
    for (Knowledge& thread : threads) {
      group.join(thread.known.rows, thread.known.count);
      thread.known.count = 0;
    }
  }

  void fence(const Release& own) {
    active = true;
    Knowledge& thread = threads[own.thread];
    for (unsigned i = 0; i < thread.seen_count; ++i) {
      const Releases& releases = place_of(thread.seen[i]).releases;
      thread.known.join(releases.rows, releases.count, own.memories);
    }
    thread.seen_count = 0;
    thread.released.count = 0;
    thread.released.join(thread.known.rows, thread.known.count);
    thread.released.join(group.rows, group.count);
    thread.released.join(&own, 1);
  }

  void access(unsigned number, const char* address, bool reads, bool writes) {
    active = true;
    Knowledge& thread = threads[number];
    if (reads) see(thread, address);
    if (writes && thread.released.count)
      place_of(address).releases.join(thread.released.rows, thread.released.count);
  }

  // Whether `thread` of the threadgroup `own` knows what thread `other` of a threadgroup did.
  bool knows(unsigned own, unsigned thread, unsigned other_group, unsigned other, unsigned epoch,
             unsigned memory) const {
    if (!active) return false;
    unsigned needed = 1u << memory << (own == other_group ? 0 : kForAllGroups);
    return threads[thread].known.covers(other_group, other, epoch, memory, needed) ||
           group.covers(other_group, other, epoch, memory, needed);
  }

 private:
  bool active;  // a fence or an atomic was executed in this threadgroup

  static void see(Knowledge& thread, const char* address) {
    for (unsigned i = 0; i < thread.seen_count; ++i)
      if (thread.seen[i] == address) return;
    if (thread.seen_count == thread.seen_capacity) {
      thread.seen_capacity = later(4, 2 * thread.seen_capacity);
      thread.seen = (const char**)realloc(thread.seen, thread.seen_capacity * sizeof(char*));
    }
    thread.seen[thread.seen_count++] = address;
  }

  Published& place_of(const char* address) {
    if (2 * used >= size) grow();
    Published& place = find(address);
    if (!place.address) {
      place.address = address;
      ++used;
    }
    return place;
  }

  Published& find(const char* address) {
    unsigned long hash = (unsigned long)address * 0x9e3779b97f4a7c15ul >> 32;
    unsigned i = hash & (size - 1);
    while (places[i].address && places[i].address != address) i = (i + 1) & (size - 1);
    return places[i];
  }

  void grow() {
    Published* before = places;
    unsigned count = size;
    size = later(64, 2 * size);
    places = (Published*)calloc(size, sizeof(Published));
    for (unsigned i = 0; i < count; ++i)
      if (before[i].address) find(before[i].address) = before[i];
    free(before);
  }
};

inline Publications publications;
