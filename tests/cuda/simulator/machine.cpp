// Runs the threads of a grid, block after block. Threads of a warp run one by one, in an order that
// changes, up to where they wait for each other.
#include "machine.h"

// The compiler comes without the system's headers.
extern "C" {
struct timespec {
  s64 seconds, nanoseconds;
};
int clock_gettime(int, timespec*);
int snprintf(char*, u64, const char*, ...);
void* calloc(u64, u64);
void free(void*);
void* memcpy(void*, const void*, u64);
}

namespace {

constexpr int monotonic = 1;

// Zeros at first.
template <class T>
struct Array {
  u64 count;
  T* items;

  explicit Array(u64 count) : count(count), items(static_cast<T*>(calloc(count, sizeof(T)))) {}
  Array(const Array&) = delete;
  ~Array() { free(items); }
  void swap(Array& other) {
    const u64 others = other.count;
    T* const theirs = other.items;
    other.count = count, other.items = items;
    count = others, items = theirs;
  }
  T& operator[](u64 i) { return items[i]; }
  T* begin() const { return items; }
  T* end() const { return items + count; }
};

typedef void (*Step)(Thread&, void*);

constexpr u32 rounds_without_rest = 1u << 14, rests_before_others = 64;
constexpr u32 rests_without_end = 1u << 13;

struct Random {
  u64 state;
  u64 next() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
  }
  u32 below(u32 bound) { return u32((next() >> 16) % bound); }
  void fill(Array<u64>& words) {
    for (u64& word : words) word = next();
  }
};

struct Grid {
  Step step;
  Random random;
  Block block;
  Array<Thread> threads;
  Array<u64> registers, memory;
  u64 words_of_thread;
  char* message;
  u64 message_size;
};

template <class... Values>
bool fails(Grid& grid, const char* form, Values... values) {
  snprintf(grid.message, grid.message_size, form, values...);
  return false;
}

u8* aligned(const Array<u64>& words) { return (u8*)((u64(words.items) + 63) / 64 * 64); }

struct Lane {
  Thread* thread;
  bool ready, ended;
};

// --- what lanes do together ----------------------------------------------------------------------

float to_float(u16 word, Element kind) {
  if (kind == Element::half) return float(__builtin_bit_cast(_Float16, word));
  return __builtin_bit_cast(float, u32(word) << 16);
}
u16 half_of(u64 word, u32 which) { return u16(word >> which * 16); }

void shuffle(Lane* lanes, u32 members, Random& random) {
  u32 results[warp_size];
  bool inside[warp_size];
  for (u32 lane = 0; lane < warp_size; ++lane) {
    if (!(members >> lane & 1)) continue;
    const Request& one = lanes[lane].thread->request;
    const u32 by = u32(one.in[1]) & 31, clamp = one.more & 31, segment = one.more >> 8 & 31;
    const u32 most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    u32 from = 0;
    switch (Shuffle(one.how)) {
      case Shuffle::idx:
        from = least | (by & ~segment);
        inside[lane] = from <= most;
        break;
      case Shuffle::up:
        from = lane - by;
        inside[lane] = int(from) >= int(most);
        break;
      case Shuffle::down:
        from = lane + by;
        inside[lane] = from <= most;
        break;
      case Shuffle::bfly:
        from = lane ^ by;
        inside[lane] = from <= most;
        break;
    }
    if (!inside[lane]) from = lane;
    // What a lane has that is not there is nobody's guess.
    results[lane] =
        members >> from & 1 ? u32(lanes[from].thread->request.in[0]) : u32(random.next());
  }
  for (u32 lane = 0; lane < warp_size; ++lane) {
    if (!(members >> lane & 1)) continue;
    const Request& one = lanes[lane].thread->request;
    *one.out[0] = results[lane];
    if (one.out_predicate) *one.out_predicate = inside[lane];
  }
}

u32 reduced(Reduction how, u32 a, u32 b) {
  switch (how) {
    case Reduction::add:
      return a + b;
    case Reduction::min_u:
      return a < b ? a : b;
    case Reduction::max_u:
      return a > b ? a : b;
    case Reduction::min_s:
      return s32(a) < s32(b) ? a : b;
    case Reduction::max_s:
      return s32(a) > s32(b) ? a : b;
    case Reduction::bits_and:
      return a & b;
    case Reduction::bits_or:
      return a | b;
    case Reduction::bits_xor:
      return a ^ b;
  }
}

void vote_reduce_match(Lane* lanes, u32 members) {
  u32 ballot = 0, total = 0;
  bool begun = false;
  for (u32 lane = 0; lane < warp_size; ++lane) {
    if (!(members >> lane & 1)) continue;
    const Request& one = lanes[lane].thread->request;
    if (one.in[0]) ballot |= 1u << lane;
    total = begun ? reduced(Reduction(one.how), total, u32(one.in[0])) : u32(one.in[0]);
    begun = true;
  }
  for (u32 lane = 0; lane < warp_size; ++lane) {
    if (!(members >> lane & 1)) continue;
    const Request& one = lanes[lane].thread->request;
    if (one.stop == Stop::reduction) {
      *one.out[0] = total;
    } else if (one.stop == Stop::match) {
      u32 alike = 0;
      for (u32 other = 0; other < warp_size; ++other)
        if ((members >> other & 1) && lanes[other].thread->request.in[0] == one.in[0])
          alike |= 1u << other;
      *one.out[0] = alike;
    } else {
      switch (Vote(one.how)) {
        case Vote::ballot:
          *one.out[0] = ballot;
          break;
        case Vote::any:
          *one.out_predicate = ballot != 0;
          break;
        case Vote::all:
          *one.out_predicate = ballot == members;
          break;
        case Vote::uni:
          *one.out_predicate = ballot == members || ballot == 0;
          break;
      }
    }
  }
}

// A matrix's element in the fragment that the lanes have: a row is in four lanes, two in each.
u16 element(Lane* lanes, u32 word, u32 row, u32 column) {
  return half_of(lanes[row * 4 + column / 2].thread->request.in[word], column % 2);
}

void transpose(Lane* lanes) {
  u32 results[warp_size];
  for (u32 lane = 0; lane < warp_size; ++lane)
    results[lane] = element(lanes, 0, lane % 4 * 2, lane / 4) |
                    u32(element(lanes, 0, lane % 4 * 2 + 1, lane / 4)) << 16;
  for (u32 lane = 0; lane < warp_size; ++lane) *lanes[lane].thread->request.out[0] = results[lane];
}

void load_matrices(Lane* lanes, const Block& block) {
  for (u32 lane = 0; lane < warp_size; ++lane) {
    const Request& one = lanes[lane].thread->request;
    for (u32 matrix = 0; matrix < one.count; ++matrix) {
      u32 word = 0;
      for (u32 half = 0; half < 2; ++half) {
        const u32 side = lane % 4 * 2 + half;
        const u32 row = one.more ? side : lane / 4, column = one.more ? lane / 4 : side;
        const u64 from = lanes[matrix * 8 + row].thread->request.in[0] - block.shared_base;
        u16 found;
        memcpy(&found, block.shared + from + column * 2, 2);
        word |= u32(found) << half * 16;
      }
      *one.out[matrix] = word;
    }
  }
}

// 16 x k by k x 8. The hardware does not say how it rounds; here a sum is rounded once.
void multiply(Lane* lanes) {
  const u32 k = lanes[0].thread->request.more, words_of_left = k / 4, of_right = k / 8;
  float results[warp_size][4];
  for (u32 lane = 0; lane < warp_size; ++lane) {
    const Element kind = Element(lanes[lane].thread->request.how);
    for (u32 place = 0; place < 4; ++place) {
      const u32 row = lane / 4, column = lane % 4 * 2 + place % 2, lower = place / 2;
      double sum = __builtin_bit_cast(
          float, u32(lanes[lane].thread->request.in[words_of_left + of_right + place]));
      for (u32 i = 0; i < k; ++i) {
        const u16 left = element(lanes, i / 8 * 2 + lower, row, i % 8);
        const u16 right =
            half_of(lanes[column * 4 + i % 8 / 2].thread->request.in[words_of_left + i / 8], i % 2);
        sum += double(to_float(left, kind)) * to_float(right, kind);
      }
      results[lane][place] = float(sum);
    }
  }
  for (u32 lane = 0; lane < warp_size; ++lane)
    for (u32 place = 0; place < 4; ++place)
      *lanes[lane].thread->request.out[place] = __builtin_bit_cast(u32, results[lane][place]);
}

// --- who waits for whom --------------------------------------------------------------------------

bool do_together(Grid& grid, Lane* lanes, u32 members, const Request& request) {
  switch (request.stop) {
    case Stop::shuffle:
      shuffle(lanes, members, grid.random);
      return true;
    case Stop::vote:
    case Stop::reduction:
    case Stop::match:
      vote_reduce_match(lanes, members);
      return true;
    case Stop::warp_barrier:
      return true;
    default:
      break;
  }
  if (members != ~0u)
    return fails(grid, "line %u: a matrix, and not all lanes are there", request.place);
  if (request.stop == Stop::matrix_load)
    load_matrices(lanes, grid.block);
  else if (request.stop == Stop::matrix_transposition)
    transpose(lanes);
  else
    multiply(lanes);
  return true;
}

// Lanes that wait as one of them does, for the same ones. They may be at other places, but for what
// asks who is there, and for matrices (.aligned).
u32 beside(Lane* lanes, u32 lane) {
  const Request& wanted = lanes[lane].thread->request;
  u32 found = 0;
  for (u32 other = 0; other < warp_size; ++other) {
    if (lanes[other].ready || lanes[other].ended) continue;
    const Request& one = lanes[other].thread->request;
    const bool alike = one.stop == wanted.stop && one.how == wanted.how && one.mask == wanted.mask;
    const bool anywhere = wanted.stop < Stop::active;
    if (alike && (anywhere || one.place == wanted.place)) found |= 1u << other;
  }
  return found;
}

void release(Lane* lanes, u32 members) {
  for (u32 lane = 0; lane < warp_size; ++lane) lanes[lane].ready |= members >> lane & 1;
}

// Lets lanes go on for which all have come; -1 where something is wrong, 0 where none can.
int meet(Grid& grid, Lane* lanes) {
  u32 live = 0;
  for (u32 lane = 0; lane < warp_size; ++lane) live |= u32(!lanes[lane].ended) << lane;
  for (u32 lane = 0; lane < warp_size; ++lane) {
    if (lanes[lane].ready || lanes[lane].ended) continue;
    const Request& one = lanes[lane].thread->request;
    if (one.stop == Stop::barrier || one.stop == Stop::active) continue;
    const u32 members = beside(lanes, lane);
    if (members & ~one.mask) {
      fails(grid, "line %u: lanes %08x wait for %08x, and are not among them", one.place, members,
            one.mask);
      return -1;
    }
    if ((one.mask & live) & ~members) continue;
    if (!do_together(grid, lanes, members, one)) return -1;
    release(lanes, members);
    return 1;
  }
  return 0;
}

// Which of two comes first, as memcmp says.
int turn(const Request& a, const Request& b) {
  for (u32 i = 0; i < max_when; ++i)
    if (a.when[i] != b.when[i]) return a.when[i] < b.when[i] ? -1 : 1;
  return 0;
}

// Who is there: lanes at the first place of the program at which any asks, when none else moves.
bool tell_who_is_there(Lane* lanes) {
  u32 first = warp_size;
  for (u32 lane = 0; lane < warp_size; ++lane) {
    if (lanes[lane].ready || lanes[lane].ended) continue;
    const Request& one = lanes[lane].thread->request;
    if (one.stop == Stop::active &&
        (first == warp_size || turn(one, lanes[first].thread->request) < 0))
      first = lane;
  }
  if (first == warp_size) return false;
  u32 members = beside(lanes, first);
  for (u32 lane = 0; lane < warp_size; ++lane)
    if (turn(lanes[lane].thread->request, lanes[first].thread->request) != 0)
      members &= ~(1u << lane);
  for (u32 lane = 0; lane < warp_size; ++lane)
    if (members >> lane & 1) *lanes[lane].thread->request.out[0] = members;
  release(lanes, members);
  return true;
}

// Runs the lanes of a warp as far as they come without other warps. 1 where any moved, -1 for an
// error.
int run_warp(Grid& grid, Lane* lanes, u32& rests) {
  bool moved = false;
  for (;;) {
    const u32 begin = grid.random.below(warp_size);
    const u32 stride = grid.random.below(16) * 2 + 1;
    bool rested = false, ran = false;
    for (u32 i = 0; i < warp_size; ++i) {
      Lane& lane = lanes[(begin + i * stride) % warp_size];
      if (!lane.ready) continue;
      Thread& thread = *lane.thread;
      thread.rounds = rounds_without_rest;
      grid.step(thread, aligned(grid.registers) + grid.words_of_thread * 8 * thread.index);
      if (thread.failure) {
        fails(grid, "line %u: %s, by thread %u of block (%u, %u, %u)", thread.failed_at,
              thread.failure, thread.index, grid.block.position[0], grid.block.position[1],
              grid.block.position[2]);
        return -1;
      }
      ran = moved = true;
      lane.ready = thread.request.stop == Stop::resting;
      rested |= lane.ready;
      lane.ended = thread.request.stop == Stop::ended;
      if (lane.ended) arrive(thread, 0);
    }
    const int met = meet(grid, lanes);
    if (met < 0) return -1;
    if (met > 0) {
      moved = true;
      continue;
    }
    if (rested) {
      if (++rests > rests_without_end) {
        fails(grid, "a loop without end");
        return -1;
      }
      if (rests % rests_before_others) return 1;
    }
    if (tell_who_is_there(lanes)) {
      moved = true;
      continue;
    }
    if (!ran || rested) return moved;
  }
}

bool release_barrier(Array<Lane>& lanes) {
  const Request* first = nullptr;
  u32 waiting = 0, live = 0;
  for (const Lane& lane : lanes) {
    if (lane.ended) continue;
    ++live;
    const Request& one = lane.thread->request;
    if (lane.ready || one.stop != Stop::barrier) continue;
    if (!first) first = &one;
    waiting += one.how == first->how && one.count == first->count;
  }
  if (!first || waiting != (first->count ? first->count : live)) return false;
  const u32 number = first->how;
  for (Lane& lane : lanes)
    if (!lane.ended && !lane.ready && lane.thread->request.stop == Stop::barrier &&
        lane.thread->request.how == number)
      lane.ready = true;
  return true;
}

bool tell_of_deadlock(Grid& grid, const Array<Lane>& lanes) {
  u64 used = 0;
  u32 told = 0, last = 0;
  for (const Lane& lane : lanes) {
    if (lane.ended) continue;
    const Request& one = lane.thread->request;
    if (one.place == last || ++told > 6) continue;
    last = one.place;
    used += u64(
        snprintf(grid.message + used, grid.message_size - used, "%s thread %u at line %u for %08x",
                 used ? "," : "threads wait for ever:", lane.thread->index, one.place, one.mask));
    if (used >= grid.message_size) break;
  }
  return false;
}

bool run_block(Grid& grid) {
  grid.random.fill(grid.memory);
  Array<Lane> lanes(grid.threads.count);
  for (u32 i = 0; i < lanes.count; ++i) {
    Thread& thread = grid.threads[i];
    thread.at = at_start, thread.index = i, thread.block = &grid.block;
    thread.failure = nullptr;
    thread.copy_count = thread.batches = 0;
    lanes[i] = {&thread, i < grid.block.width, i >= grid.block.width};
  }
  const u32 warps = u32(lanes.count) / warp_size;
  u32 rests = 0;
  for (;;) {
    bool moved = false, live = false;
    const u32 begin = grid.random.below(warps);
    for (u32 i = 0; i < warps; ++i) {
      const int result = run_warp(grid, &lanes[(begin + i) % warps * warp_size], rests);
      if (result < 0) return false;
      moved |= result > 0;
    }
    for (const Lane& lane : lanes) live |= !lane.ended;
    if (!live) return true;
    if (!release_barrier(lanes) && !moved) return tell_of_deadlock(grid, lanes);
  }
}

}  // namespace

// Which bytes a launch has written: a bit for each, eight at a time.
struct Written {
  struct Eight {
    u64 place;
    u32 bytes;
  };
  Array<Eight> table{1u << 12};
  u64 count = 0;

  static Eight& find(Array<Eight>& table, u64 place) {
    u64 at = place * 0x9E3779B97F4A7C15 >> 20 & (table.count - 1);
    while (table[at].bytes && table[at].place != place) at = (at + 1) & (table.count - 1);
    return table[at];
  }
  void add(u64 place, u32 bytes) {
    if (count * 2 > table.count) grow();
    Eight& one = find(table, place);
    count += one.bytes == 0;
    one.place = place, one.bytes |= bytes;
  }
  void grow() {
    Array<Eight> larger(table.count * 4);
    for (const Eight& one : table)
      if (one.bytes) find(larger, one.place) = one;
    table.swap(larger);
  }
};

extern "C" {

void note_written(Thread& t, u64 address, u32 size) {
  for (u64 byte = address; byte < address + size; ++byte)
    t.block->written->add(byte / 8, 1u << byte % 8);
}

bool was_written(Thread& t, u64 address, u32 size) {
  for (u64 byte = address; byte < address + size; ++byte)
    if (Written::find(t.block->written->table, byte / 8).bytes >> byte % 8 & 1) return true;
  return false;
}

u64 now() {
  timespec time;
  clock_gettime(monotonic, &time);
  return u64(time.seconds) * 1000000000 + u64(time.nanoseconds);
}

// Copies arrive when they are waited for, and no sooner.
void arrive(Thread& t, u32 batches) {
  u32 kept = 0;
  for (u32 i = 0; i < t.copy_count; ++i) {
    const Copy one = t.copies[i];
    if (batches != 0 && one.batch + batches >= t.batches)
      t.copies[kept++] = one;
    else
      memcpy(t.block->shared + (one.to - t.block->shared_base), (const void*)one.from, one.size);
  }
  t.copy_count = kept;
}

void add_copy(Thread& t, Copy copy) {
  if (t.copy_count == t.copy_room) {
    const u32 room = t.copy_room ? t.copy_room * 2 : 64;
    Copy* larger = static_cast<Copy*>(calloc(room, sizeof(Copy)));
    if (t.copy_count) memcpy(larger, t.copies, t.copy_count * sizeof(Copy));
    free(t.copies);
    t.copies = larger, t.copy_room = room;
  }
  t.copies[t.copy_count++] = copy;
}

// Runs a grid; false, and a message, where something is wrong.
bool simulate(void* step, u64 registers_size, const u32* groups, u32 width, u32 shared_base,
              u32 shared_size, const void* parameter, u64 seed, char* message, u64 message_size) {
  const u64 threads = (width + warp_size - 1) / warp_size * warp_size;
  const u64 words = (registers_size + 63) / 64 * 8;
  Grid grid = {Step(step),
               {seed | 1},
               {},
               Array<Thread>(threads),
               Array<u64>(words * threads + 8),
               Array<u64>(shared_size / 8 + 16),
               words,
               message,
               message_size};
  grid.random.fill(grid.registers);
  Block& block = grid.block;
  block.width = width, block.shared_base = shared_base, block.shared_size = shared_size;
  block.shared = aligned(grid.memory);
  block.parameter = static_cast<const u8*>(parameter);
  Written written;
  block.written = &written;
  bool good = true;
  for (int i = 0; i < 3; ++i) block.groups[i] = groups[i];
  for (u32 z = 0; z < groups[2] && good; ++z)
    for (u32 y = 0; y < groups[1] && good; ++y)
      for (u32 x = 0; x < groups[0] && good; ++x) {
        block.position[0] = x, block.position[1] = y, block.position[2] = z;
        good = run_block(grid);
      }
  for (Thread& thread : grid.threads) free(thread.copies);
  return good;
}
}
