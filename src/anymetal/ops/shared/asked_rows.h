// Whole rows by turns, which a threadgroup asks for long before it comes to them: what is on its
// way, the rows at hand and parameters lie in places of their own (shared/ahead.h) and take no
// registers.
#pragma once
#include "shared/ahead.h"
#include "shared/team.h"

// What a thread asks for: of rows of some tensors, each of which has parts of so many accesses of
// 16 bytes, and of parameters, which stay. There is room for some parts of rows. Accesses of a
// simdgroup stand side by side, so that a thread's are a fixed distance apart.
template <typename T, uint tensors, uint parameters, uint accesses_of_part, uint parts_of_row,
          uint room_for, uint threads>
struct AskedRows {
  static constexpr constant uint accesses = accesses_of_part;
  static constexpr constant uint parts = parts_of_row;
  static constexpr constant uint room = room_for;
  static constexpr constant uint width = 16 / sizeof(T);
  static constexpr constant uint vectors = Access<width>::parts;
  static constexpr constant uint distance = 32 * width;
  static constexpr constant uint elements = accesses * distance;  // of a simdgroup's part
  static constexpr constant uint parameters_at = tensors * accesses * room;
  using Places = Asked<parameters_at + parameters * parts * accesses, threads>;

  device const T* from[tensors];  // the thread's first element of its first row
  device const T* parameter[parameters];
  long step;  // between rows
  uint turns;

  // The parameters, and as many parts of rows as there is room for.
  void begin() const thread {
#pragma unroll
    for (uint i = 0; i < parts * accesses; ++i)
#pragma unroll
      for (uint p = 0; p < parameters; ++p)
        Places::ask(parameters_at + i * parameters + p, parameter[p] + i * distance);
#pragma unroll
    for (uint part = 0; part < room; ++part) {
      if (part / parts < turns) {
#pragma unroll
        for (uint i = 0; i < accesses; ++i) ask(part, i, part / parts, part % parts);
      }
      Places::close();
    }
  }
  // An access of a part of the row of a turn.
  void ask(uint place, uint i, uint turn, uint part) const thread {
#pragma unroll
    for (uint t = 0; t < tensors; ++t)
      Places::ask(slot(place, i, t), from[t] + at(turn, part) + i * distance);
  }
  void take(thread float4* values, uint tensor, uint place, uint i, uint turn,
            uint part) const thread {
    read(values,
         Places::take(slot(place, i, tensor), from[tensor] + at(turn, part) + i * distance));
  }
  void take_parameter(thread float4* values, uint p, uint part, uint i) const thread {
    const uint index = part * accesses + i;
    read(values,
         Places::take(parameters_at + index * parameters + p, parameter[p] + index * distance));
  }
  // Asks for what comes to a place of which all has been taken: an access of the part that is
  // `room` parts behind this one.
  void ask_next(uint place, uint i, uint turn, uint part) const thread {
    const uint later = (part + room) / parts;
    if (turn + later < turns) ask(place, i, turn + later, (part + room) % parts);
  }
  long at(uint turn, uint part) const thread { return turn * step + part * elements; }

  static uint behind(uint place, uint count = 1) {
    return place + count < room ? place + count : place + count - room;
  }

 private:
  static uint slot(uint place, uint i, uint tensor) {
    return (place * accesses + i) * tensors + tensor;
  }
  static void read(thread float4* values, uint4 words) {
    Lying<T, width>::read(values, as_type<typename Lying<T, width>::type>(words));
  }
};

// Something near the means of rows, which differences are taken from: the mean of as many elements
// as lanes. They are read two turns ahead; a compiler must not know that nobody writes them, or it
// would put that off.
template <typename T, bool wanted>
struct NearMeans {
  device T* x;  // the lane's element of the threadgroup's first row
  long step;
  uint turns;
  float read;

  float first() thread {
    if constexpr (!wanted) return 0.0f;
    read = float(x[turns > 1 ? step : 0]);
    return mean_of(float(*x));
  }
  // Of the row behind that of a turn.
  float next(uint turn) thread {
    if constexpr (!wanted) return 0.0f;
    const float found = mean_of(read);
    read = float(x[min(turn + 2, turns - 1) * step]);
    return found;
  }

 private:
  static float mean_of(float value) { return lanes_sum(value) * (1.0f / 32.0f); }
};
