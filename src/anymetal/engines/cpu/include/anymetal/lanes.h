// How the lanes of a simdgroup exchange values: all leave theirs, wait, and one computes for all.
#pragma once
#include <anymetal/machine.h>
#include <anymetal/wide.h>

// Where the lanes leave values of type T: an array of one T a lane. Types of 1, 2, 4, ... 64 bytes
// have an array each, so that lanes which wait at different collectives of a divergent simdgroup do
// not write over one another.
template <class T>
AM_INLINE T* am_lanes_in(am_simdgroup* simd) {
  static_assert(sizeof(T) <= AM_SLOT_BYTES && (sizeof(T) & (sizeof(T) - 1)) == 0);
  return reinterpret_cast<T*>(simd->inputs + AM_SIMD_WIDTH * sizeof(T));
}

// One collective operation of a simdgroup. Every lane leaves its value; the leader, resumed first,
// calls `compute(active, in, out)` once over the typed arrays of 32 values; every active lane takes
// its result. Values of inactive lanes in `in` are stale: `compute` must look at the mask. With
// `Shared` the result is the same for every lane, and taken from where lane 0 would find it: then
// an engine that runs all lanes at once knows that it is one value.
template <class Out, bool Shared = false, class In, class Compute>
AM_INLINE Out am_collective(In value, Compute compute) {
  static_assert(sizeof(Out) <= AM_SLOT_BYTES);
  am_thread* self = am_self();
  am_lanes_in<In>(self->simd)[self->lane] = value;
  am_wait_at(AM_COLLECTIVE);
  am_simdgroup* simd = self->simd;
  if (simd->leader == self->lane)
    compute(simd->active, static_cast<const In*>(am_lanes_in<In>(simd)),
            reinterpret_cast<Out*>(simd->outputs));
  Out result = reinterpret_cast<const Out*>(simd->outputs)[Shared ? 0 : self->lane];
  am_taken();
  return result;
}

// Every lane leaves its value, and takes what `pick(values, active, lane)` makes of all of them.
// The leader sets the values aside first: a lane that runs on may soon leave its next value.
template <class T, class Pick>
AM_INLINE auto am_exchange(T value, Pick pick) {
  am_thread* self = am_self();
  am_lanes_in<T>(self->simd)[self->lane] = value;
  am_wait_at(AM_COLLECTIVE);
  am_simdgroup* simd = self->simd;
  if (simd->leader == self->lane) {
    constexpr int bytes = AM_SIMD_WIDTH * sizeof(T);
    am_store_wide<uchar, bytes>(simd->outputs, am_load_wide<uchar, bytes>(am_lanes_in<T>(simd)));
  }
  auto result = pick(reinterpret_cast<const T*>(simd->outputs), simd->active, self->lane);
  am_taken();
  return result;
}

// The active lanes, once this lane and they have met.
AM_INLINE unsigned am_meet() {
  am_wait_at(AM_COLLECTIVE);
  unsigned active = am_self()->simd->active;
  am_taken();
  return active;
}

// Lanes gather one structure, where collectives of 64 bytes a lane leave their values: `fill`
// writes this lane's part and says which of the results is its own; the leader calls `compute`
// once.
template <class Gathered, class Result, class Fill, class Compute>
AM_INLINE Result am_gather(Fill fill, Compute compute) {
  struct Place {
    alignas(64) char bytes[64];
  };
  static_assert(sizeof(Gathered) <= sizeof(Place) * AM_SIMD_WIDTH);
  am_thread* self = am_self();
  unsigned own = fill(reinterpret_cast<Gathered*>(am_lanes_in<Place>(self->simd)), self->lane);
  am_wait_at(AM_COLLECTIVE);
  am_simdgroup* simd = self->simd;
  if (simd->leader == self->lane)
    compute(reinterpret_cast<Gathered*>(am_lanes_in<Place>(simd)), simd->active, simd->outputs);
  return reinterpret_cast<const Result*>(simd->outputs)[own];
}
