// How the lanes of a simdgroup touch memory in one access: a profile's counters, for addresses that
// follow no pattern that is known when the kernel is compiled.

extern "C" void* calloc(unsigned long count, unsigned long size);
extern "C" void free(void* memory);
extern "C" void am_touched(unsigned long first, unsigned long last);

namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kLineShift = 7;
constexpr unsigned kBanks = 32;
constexpr unsigned kSlots = 512;  // more than four words a lane, so that probing ends soon

// The record of a site, as passes/simdgroup/observers.py has it.
enum { kMoved, kLeast, kWorst, kRegular, kStride, kContended };
// How to look, as passes/count/observe.py has it.
enum { kByBanks = 1, kAtomic = 2 };

// Numbers that were seen; a slot belongs to the set where its stamp is this one's.
struct Seen {
  unsigned long number[kSlots];
  unsigned times[kSlots];
  unsigned stamp[kSlots];
  unsigned now;
};

Seen seen;

// How often a number was there, with this time.
unsigned add(unsigned long number) {
  unsigned slot = (unsigned)((number * 0x9e3779b97f4a7c15ul) >> 55);
  while (seen.stamp[slot] == seen.now) {
    if (seen.number[slot] == number) return ++seen.times[slot];
    slot = (slot + 1) % kSlots;
  }
  seen.stamp[slot] = seen.now;
  seen.number[slot] = number;
  return seen.times[slot] = 1;
}

void clear() {
  if (++seen.now) return;
  for (unsigned slot = 0; slot < kSlots; ++slot) seen.stamp[slot] = 0;
  seen.now = 1;
}

// Lines that the lanes touch, and the least that could hold as many bytes.
void look_at_lines(const unsigned long* address, unsigned mask, unsigned size, unsigned long& moved,
                   unsigned long& least) {
  unsigned long lines = 0, places = 0, last_line = ~0ul, last = ~0ul;
  bool ascending = true;
  for (unsigned rest = mask; rest && ascending; rest &= rest - 1) {
    unsigned long here = address[__builtin_ctz(rest)];
    ascending = last == ~0ul || here >= last;
    if (here != last) ++places;
    last = here;
    for (unsigned long line = here >> kLineShift; line <= (here + size - 1) >> kLineShift; ++line) {
      if (line == last_line || (last_line != ~0ul && line < last_line)) continue;
      last_line = line;
      ++lines;
    }
  }
  if (!ascending) {
    lines = places = 0;
    clear();
    for (unsigned rest = mask; rest; rest &= rest - 1) {
      unsigned long here = address[__builtin_ctz(rest)];
      for (unsigned long line = here >> kLineShift; line <= (here + size - 1) >> kLineShift; ++line)
        lines += add(line) == 1;
    }
    clear();
    for (unsigned rest = mask; rest; rest &= rest - 1)
      places += add(address[__builtin_ctz(rest)]) == 1;
  }
  moved = lines;
  least = (places * size + (1ul << kLineShift) - 1) >> kLineShift;
}

// Cycles in which the banks give all words, one each, and the least for as many words.
void look_at_banks(const unsigned long* address, unsigned mask, unsigned size, unsigned long& moved,
                   unsigned long& least) {
  unsigned words = 0, most = 0, banks[kBanks] = {};
  clear();
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    unsigned long here = address[__builtin_ctz(rest)];
    for (unsigned long word = here >> 2; word <= (here + size - 1) >> 2; ++word) {
      if (add(word) > 1) continue;
      ++words;
      unsigned taken = ++banks[word % kBanks];
      if (taken > most) most = taken;
    }
  }
  moved = most;
  least = (words + kBanks - 1) / kBanks;
}

// Whether lanes that follow one another are a fixed distance apart, and which.
bool regular(const unsigned long* address, unsigned mask, long& stride) {
  bool known = false;
  for (unsigned lane = 1; lane < kLanes; ++lane) {
    if ((mask >> (lane - 1) & 3) != 3) continue;
    long step = (long)(address[lane] - address[lane - 1]);
    if (known && step != stride) return false;
    stride = step;
    known = true;
  }
  return known;
}

// The most lanes that want one address.
unsigned contended(const unsigned long* address, unsigned mask) {
  unsigned most = 0;
  clear();
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    unsigned same = add(address[__builtin_ctz(rest)]);
    if (same > most) most = same;
  }
  return most;
}

// Which lines of device memory were touched: a bit each, in pages of 2^20 lines.
constexpr unsigned kPageShift = 20;
constexpr unsigned kPages = 1024;
constexpr unsigned long kPageBytes = (1ul << kPageShift) / 8;

struct Page {
  unsigned long number;
  unsigned char* bits;
};

Page pages[kPages];
Page latest;
unsigned long touched_lines;

unsigned char* bits_of(unsigned long number) {
  unsigned slot = number % kPages;
  for (unsigned tries = 0; tries < kPages; ++tries, slot = (slot + 1) % kPages) {
    Page& page = pages[slot];
    if (page.bits && page.number == number) return page.bits;
    if (!page.bits) {
      page.number = number;
      return page.bits = (unsigned char*)calloc(kPageBytes, 1);
    }
  }
  return nullptr;  // 128 GB of memory in one launch
}

}  // namespace

extern "C" void am_touched(unsigned long first, unsigned long last) {
  for (unsigned long line = first; line <= last; ++line) {
    if (!latest.bits || line >> kPageShift != latest.number)
      latest = {line >> kPageShift, bits_of(line >> kPageShift)};
    if (!latest.bits) return;
    unsigned long place = line & ((1ul << kPageShift) - 1);
    unsigned char bit = (unsigned char)(1u << (place & 7));
    if (latest.bits[place >> 3] & bit) continue;
    latest.bits[place >> 3] |= bit;
    ++touched_lines;
  }
}

// How many lines were touched since the last call.
extern "C" unsigned long am_take_touched() {
  for (unsigned slot = 0; slot < kPages; ++slot) {
    free(pages[slot].bits);
    pages[slot].bits = nullptr;
  }
  latest.bits = nullptr;
  unsigned long count = touched_lines;
  touched_lines = 0;
  return count;
}

extern "C" void am_observed(unsigned long* record, const unsigned long* address, unsigned mask,
                            unsigned size, unsigned how, unsigned long start) {
  if (!size) size = 1;
  unsigned long moved, least, from_start[kLanes];
  if (start) {
    for (unsigned lane = 0; lane < kLanes; ++lane) from_start[lane] = address[lane] - start;
    address = from_start;
  }
  if (how & kByBanks) {
    look_at_banks(address, mask, size, moved, least);
  } else {
    look_at_lines(address, mask, size, moved, least);
    unsigned long before = ~0ul;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
      unsigned long here = address[__builtin_ctz(rest)];
      unsigned long last = (here + size - 1) >> kLineShift;
      if (last != before || here >> kLineShift != before) am_touched(here >> kLineShift, last);
      before = last;
    }
  }
  if (how & kAtomic) record[kContended] += contended(address, mask);
  record[kMoved] += moved;
  record[kLeast] += least ? least : 1;
  if (moved > record[kWorst]) record[kWorst] = moved;
  long stride = 0;
  if (regular(address, mask, stride)) {
    ++record[kRegular];
    record[kStride] = (unsigned long)stride;
  }
}
