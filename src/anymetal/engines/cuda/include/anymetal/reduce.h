// Votes, reductions and scans of lanes, by shuffles of a warp.
//
// Included by anymetal/collective.h, which says what they give, and in which order.
#pragma once
#include <anymetal/lanes.h>

AM_INLINE unsigned am_vote(bool expression) {
  return am_logical_mask(__nvvm_vote_ballot_sync(__nvvm_activemask(), expression));
}

// An active lane of the group that holds what lane `like` does when lanes `period` apart hold the
// same; -1 where none is active.
template <unsigned Width>
AM_INLINE int am_lane_like(unsigned like, unsigned period, unsigned active) {
  unsigned lanes = 0, start = am_group_start<Width>(like);
  for (unsigned lane = like % period; lane < Width; lane += period) lanes |= 1u << (start + lane);
  return __builtin_ffs(lanes & active) - 1;
}

// One step: the parts of lanes `distance` apart are put together, the lower lane's first, on both
// sides. Where lanes are missing, any lane that holds the same part stands in for them.
template <unsigned Width, class Operation, bool Complete, class Wide>
AM_INLINE Wide am_reduce_step(Wide part, Wide nothing, unsigned distance, unsigned mask) {
  unsigned lane = am_lane();
  int from = lane ^ distance;
  if constexpr (!Complete) from = am_lane_like<Width>(from, 2 * distance, am_logical_mask(mask));
  Wide other = am_shuffled(part, from < 0 ? lane : unsigned(from), mask);
  if (from < 0) other = nothing;
  return lane & distance ? Operation::apply(other, part) : Operation::apply(part, other);
}

// Whether redux.sync has an operation: on integers of 32 bits, in any order.
template <class Operation, class T>
constexpr bool am_has_redux =
    (__is_same(T, int) || __is_same(T, unsigned)) && !__is_same(Operation, am_product);

template <class Operation, class T>
AM_INLINE T am_redux(T value) {
  unsigned mask = __nvvm_activemask();
  if constexpr (__is_same(Operation, am_sum))
    return __nvvm_redux_sync_add(value, mask);
  else if constexpr (__is_same(Operation, am_minimum) && __is_same(T, int))
    return __nvvm_redux_sync_min(value, mask);
  else if constexpr (__is_same(Operation, am_minimum))
    return __nvvm_redux_sync_umin(value, mask);
  else if constexpr (__is_same(Operation, am_maximum) && __is_same(T, int))
    return __nvvm_redux_sync_max(value, mask);
  else if constexpr (__is_same(Operation, am_maximum))
    return __nvvm_redux_sync_umax(value, mask);
  else if constexpr (__is_same(Operation, am_bits_and))
    return __nvvm_redux_sync_and(value, mask);
  else if constexpr (__is_same(Operation, am_bits_or))
    return __nvvm_redux_sync_or(value, mask);
  else
    return __nvvm_redux_sync_xor(value, mask);
}

template <unsigned Width, class Operation, class T>
AM_INLINE T am_reduce(T value) {
  if constexpr (Width == AM_SIMD_WIDTH && am_has_redux<Operation, T>)
    return am_redux<Operation>(value);
  typedef typename am_lane_layout<T>::element S;
  constexpr int stride = am_lane_layout<T>::stride;
  am_wide<S, stride> part = {}, nothing = Operation::template neutral<S>;
  __builtin_memcpy(&part, &value, sizeof(T));
  unsigned mask = __nvvm_activemask();
  if (mask == ~0u) {
#pragma clang loop unroll(full)
    for (unsigned distance = Width / 2; distance; distance /= 2)
      part = am_reduce_step<Width, Operation, true>(part, nothing, distance, ~0u);
  } else {
#pragma clang loop unroll(disable)
    for (unsigned distance = Width / 2; distance; distance /= 2)
      part = am_reduce_step<Width, Operation, false>(part, nothing, distance, mask);
  }
  T result;
  __builtin_memcpy(&result, &part, sizeof(T));
  return result;
}

// Integers may be put together in any order: where no lane is missing, parts of lanes 1, 2, 4...
// apart.
template <unsigned Width, class Operation, bool Inclusive, class Wide>
AM_INLINE Wide am_scan_by_doubling(Wide part, Wide nothing) {
  unsigned lane = am_lane(), in_group = lane % Width;
#pragma clang loop unroll(full)
  for (unsigned distance = 1; distance < Width; distance *= 2) {
    Wide below = am_shuffled(part, (lane - distance) % AM_SIMD_WIDTH, ~0u);
    part = in_group >= distance ? Operation::apply(below, part) : part;
  }
  if constexpr (Inclusive) return part;
  Wide below = am_shuffled(part, (lane - 1) % AM_SIMD_WIDTH, ~0u);
  return in_group ? below : nothing;
}

// One lane after the other.
template <unsigned Width, class Operation, bool Inclusive, class Wide>
AM_INLINE Wide am_scan_in_order(Wide own, Wide so_far, unsigned mask) {
  unsigned lane = am_lane(), active = am_logical_mask(mask), start = am_group_start<Width>(lane);
#pragma clang loop unroll(full)
  for (unsigned step = 0; step < Width; ++step) {
    unsigned from = start + step;
    Wide next = Operation::apply(so_far, am_shuffled(own, from, mask));
    bool counts = active >> from & 1 && (Inclusive ? from <= lane : from < lane);
    so_far = counts ? next : so_far;
  }
  return so_far;
}

template <unsigned Width, class Operation, bool Inclusive, class T>
AM_INLINE T am_scan(T value) {
  typedef typename am_lane_layout<T>::element S;
  constexpr int stride = am_lane_layout<T>::stride;
  typedef am_wide<S, stride> Wide;
  unsigned mask = __nvvm_activemask();
  Wide part = {}, nothing = Operation::template neutral<S>;
  __builtin_memcpy(&part, &value, sizeof(T));
  if (am_is_integer<S> && mask == ~0u)
    part = am_scan_by_doubling<Width, Operation, Inclusive>(part, nothing);
  else
    part = am_scan_in_order<Width, Operation, Inclusive>(part, nothing, mask);
  T result;
  __builtin_memcpy(&result, &part, sizeof(T));
  return result;
}
