// Kernels of operators that reduce a state over each row and then write every element from the
// state and the element itself: the ladder of row strategies, from one simdgroup a row to several
// threadgroups.
//
// An operator is a `Step<T>`, T the type of its results, with static functions: begin, add and
// add_all make a state of elements (two tensors at once), merge and merge_simdgroup join states,
// finish is applied once a row, result gives an element, and `outside` is what an element past the
// end counts as. Elements that a thread keeps may be changed by add_all: held_result gives what is
// written of them, from the state that of_held makes of the thread's own and the row's.
//
// A step reads four elements a thread: neighbours (vec4: the length must be a multiple of 4 and
// rows aligned) or one of four stretches (scalar).
//
// Loops over what a thread holds go over all its `steps`, so that they are unrolled and the
// elements stay in registers; `count` of them are in use.
#pragma once
#include "shared/vectors.h"

// --- four elements of a row at a time --------------------------------------------------

// Where a thread's four elements lie: `next` apart, from `first` on, below `end`.
struct Four {
  uint first;
  uint next;
  uint end;
};

template <bool vectors>
inline Four four_of(uint step, uint in_row, uint threads, uint end) {
  if (vectors) return {(step * threads + in_row) * 4, 1, end};
  return {step * threads * 4 + in_row, threads, end};
}

template <bool vectors, typename T>
inline float4 load_four(device const T* row, Four at, float outside) {
  float4 values = float4(outside);
  if (vectors) {
    if (at.first < at.end) values = Width<4>::load(row + at.first);
    return values;
  }
  for (uint i = 0; i < 4; ++i) {
    const uint index = at.first + i * at.next;
    if (index < at.end) values[i] = float(row[index]);
  }
  return values;
}

template <bool vectors, typename T>
inline void store_four(device T* row, Four at, float4 values) {
  if (vectors) {
    if (at.first < at.end) Width<4>::store(row + at.first, values);
    return;
  }
  for (uint i = 0; i < 4; ++i) {
    const uint index = at.first + i * at.next;
    if (index < at.end) row[index] = T(values[i]);
  }
}

inline uint steps_of(uint columns, uint threads) {
  return (columns + threads * 4 - 1) / (threads * 4);
}

// The state of the whole threadgroup, in every thread of it.
template <typename Step>
inline float2 merge_threadgroup(float2 state, threadgroup float2* partial, uint lane, uint simd,
                                uint simds) {
  state = Step::merge_simdgroup(state);
  if (lane == 0) partial[simd] = state;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return Step::merge_simdgroup(lane < simds ? partial[lane] : Step::begin());
}

// --- rows ------------------------------------------------------------------------------

// Rows of a, b and y lie `strides` elements apart, and a chunk is what a threadgroup takes of a row
// that several share. An operator of one tensor passes it as a and as b; it is read once.
struct ReducedRows {
  uint rows;
  uint columns;
  uint chunk;
  long strides[3];
};

// A simdgroup a row, which stays in registers.
template <typename A, typename Y, typename Step, uint steps, bool vectors>
[[kernel]] void single_simdgroup(device const A* a [[buffer(0)]], device const A* b [[buffer(1)]],
                                 device Y* y [[buffer(2)]],
                                 constant ReducedRows& rows [[buffer(3)]],
                                 uint2 in_grid [[thread_position_in_grid]],
                                 uint lane [[thread_index_in_simdgroup]]) {
  const uint row = in_grid.y;
  a += row * rows.strides[0];
  b += row * rows.strides[1];
  y += row * rows.strides[2];
  const uint count = min(steps, steps_of(rows.columns, 32));
  float4 first[steps], second[steps];
#pragma unroll
  for (uint i = 0; i < steps; ++i) {
    if (i < count) {
      const Four at = four_of<vectors>(i, lane, 32, rows.columns);
      first[i] = load_four<vectors>(a, at, Step::outside());
      second[i] = load_four<vectors>(b, at, Step::outside());
    }
  }
  const float2 own = Step::template add_all<steps>(first, second, count);
  const float2 state = Step::of_held(own, Step::finish(Step::merge_simdgroup(own)));
#pragma unroll
  for (uint i = 0; i < steps; ++i)
    if (i < count)
      store_four<vectors>(y, four_of<vectors>(i, lane, 32, rows.columns),
                          Step::held_result(state, first[i], second[i]));
}

// A threadgroup a row, which stays in registers. With `eight` two steps of a thread are neighbours
// and one access, and so is their result: the length is a multiple of 8, rows are aligned to that.
template <typename A, typename Y, typename Step, uint steps, bool vectors, bool eight>
[[kernel]] void single_group(device const A* a [[buffer(0)]], device const A* b [[buffer(1)]],
                             device Y* y [[buffer(2)]], constant ReducedRows& rows [[buffer(3)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint in_group [[thread_index_in_threadgroup]],
                             uint2 threads [[threads_per_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simd [[simdgroup_index_in_threadgroup]],
                             uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float2 partial[32];
  a += group.y * rows.strides[0];
  b += group.y * rows.strides[1];
  y += group.y * rows.strides[2];
  float4 first[steps], second[steps];
  // A conversion behind a branch waits for its load there; without branches the loads of all steps
  // are on their way at once.
  if (eight && rows.columns == steps * threads.x * 4) {
#pragma unroll
    for (uint i = 0; i < steps; i += 2) {
      const uint at = (i / 2 * threads.x + in_group) * 8;
      Access<8>::load(first + i, a + at);
      Access<8>::load(second + i, b + at);
    }
  } else if (eight) {
#pragma unroll
    for (uint i = 0; i < steps; i += 2) {
      const uint at = (i / 2 * threads.x + in_group) * 8;
      Access<8>::fill(first + i, Step::outside());
      Access<8>::fill(second + i, Step::outside());
      if (at < rows.columns) {
        Access<8>::load(first + i, a + at);
        Access<8>::load(second + i, b + at);
      }
    }
  } else if (vectors && sizeof(A) == 2 && rows.columns == steps * threads.x * 4) {
#pragma unroll
    for (uint i = 0; i < steps; ++i) {
      const uint at = (i * threads.x + in_group) * 4;
      first[i] = Width<4>::load(a + at);
      second[i] = Width<4>::load(b + at);
    }
  } else {
#pragma unroll
    for (uint i = 0; i < steps; ++i) {
      const Four at = four_of<vectors>(i, in_group, threads.x, rows.columns);
      first[i] = load_four<vectors>(a, at, Step::outside());
      second[i] = load_four<vectors>(b, at, Step::outside());
    }
  }
  const float2 own = Step::template add_all<steps>(first, second, steps);
  const float2 all = merge_threadgroup<Step>(own, partial, lane, simd, simds);
  const float2 state = Step::of_held(own, Step::finish(all));
  if (eight) {
#pragma unroll
    for (uint i = 0; i < steps; i += 2) {
      const uint at = (i / 2 * threads.x + in_group) * 8;
      if (at >= rows.columns) break;
      Eight::store(y + at, Step::held_result(state, first[i], second[i]),
                   Step::held_result(state, first[i + 1], second[i + 1]));
    }
    return;
  }
#pragma unroll
  for (uint i = 0; i < steps; ++i) {
    const Four at = four_of<vectors>(i, in_group, threads.x, rows.columns);
    store_four<vectors>(y, at, Step::held_result(state, first[i], second[i]));
  }
}

// A row that is as long as all threads hold. Elements of 16 bits stay as they lie in memory, and
// become floats twice: more threadgroups have registers then. `chunk` is 0, which a compiler must
// not know: it would keep the floats. `alone`: the operator has one tensor.
template <typename A, typename Step, uint steps, bool alone>
[[kernel]] void whole_rows(device const A* a [[buffer(0)]], device const A* b [[buffer(1)]],
                           device A* y [[buffer(2)]], constant ReducedRows& rows [[buffer(3)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simd [[simdgroup_index_in_threadgroup]],
                           uint simds [[simdgroups_per_threadgroup]]) {
  using Raw = Lying<A, 8>;
  constexpr uint accesses = steps / 2;
  threadgroup float2 partial[32];
  const uint begin = (simd * accesses * 32 + lane) * 8;
  a += group.y * rows.strides[0] + begin;
  b += group.y * rows.strides[1] + begin;
  y += group.y * rows.strides[2] + begin;
  typename Raw::type first[accesses], second[alone ? 1 : accesses];
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    first[i] = Raw::load(a + i * 256);
    if constexpr (!alone) second[i] = Raw::load(b + i * 256);
  }
  float4 values[steps], others[steps];
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    Raw::read(values + 2 * i, first[i]);
    Raw::read(others + 2 * i, alone ? first[i] : second[alone ? 0 : i]);
  }
  const float2 own = Step::template add_all<steps>(values, others, steps);
  const float2 state = Step::finish(merge_threadgroup<Step>(own, partial, lane, simd, simds));
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    Raw::read(values, Raw::anew(first[i], rows.chunk));
    Raw::read(others, Raw::anew(alone ? first[i] : second[alone ? 0 : i], rows.chunk));
    Eight::store(y + i * 256, Step::result(state, values[0], others[0]),
                 Step::result(state, values[1], others[1]));
  }
}

// The state of one thread's part of a row, read once.
template <typename Step, bool vectors, typename A>
inline float2 add_row(device const A* a, device const A* b, uint columns, uint in_group,
                      uint threads) {
  float2 state = Step::begin();
  for (uint i = 0; i < steps_of(columns, threads); ++i) {
    const Four at = four_of<vectors>(i, in_group, threads, columns);
    if (at.first < columns)
      state = Step::add(state, load_four<vectors>(a, at, Step::outside()),
                        load_four<vectors>(b, at, Step::outside()));
  }
  return state;
}

template <typename Step, bool vectors, typename A, typename Y>
inline void write_row(float2 state, device const A* a, device const A* b, device Y* y, uint columns,
                      uint in_group, uint threads) {
  for (uint i = 0; i < steps_of(columns, threads); ++i) {
    const Four at = four_of<vectors>(i, in_group, threads, columns);
    store_four<vectors>(y, at,
                        Step::result(state, load_four<vectors>(a, at, Step::outside()),
                                     load_four<vectors>(b, at, Step::outside())));
  }
}

// A threadgroup a row of any length: once for the state, once for the results.
template <typename A, typename Y, typename Step, bool vectors>
[[kernel]] void looped(device const A* a [[buffer(0)]], device const A* b [[buffer(1)]],
                       device Y* y [[buffer(2)]], constant ReducedRows& rows [[buffer(3)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint in_group [[thread_index_in_threadgroup]],
                       uint2 threads [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float2 partial[32];
  a += group.y * rows.strides[0];
  b += group.y * rows.strides[1];
  y += group.y * rows.strides[2];
  const float2 own = add_row<Step, vectors>(a, b, rows.columns, in_group, threads.x);
  const float2 state = Step::finish(merge_threadgroup<Step>(own, partial, lane, simd, simds));
  write_row<Step, vectors>(state, a, b, y, rows.columns, in_group, threads.x);
}

// Several threadgroups a row. First phase: the state of each chunk of a row.
template <typename A, typename Step, bool vectors>
[[kernel]] void two_phase_reduce(
    device const A* a [[buffer(0)]], device const A* b [[buffer(1)]],
    device float2* states [[buffer(2)]], constant ReducedRows& rows [[buffer(3)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
    uint in_group [[thread_index_in_threadgroup]], uint2 threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float2 partial[32];
  const uint start = group.x * rows.chunk;
  a += group.y * rows.strides[0] + start;
  b += group.y * rows.strides[1] + start;
  const float2 own =
      add_row<Step, vectors>(a, b, min(rows.chunk, rows.columns - start), in_group, threads.x);
  const float2 state = merge_threadgroup<Step>(own, partial, lane, simd, simds);
  if (in_group == 0) states[group.y * groups.x + group.x] = state;
}

// Second phase: every threadgroup merges the states of its row, and writes its chunk.
template <typename A, typename Y, typename Step, bool vectors>
[[kernel]] void two_phase_write(device const A* a [[buffer(0)]], device const A* b [[buffer(1)]],
                                device Y* y [[buffer(2)]], constant ReducedRows& rows [[buffer(3)]],
                                device const float2* states [[buffer(4)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint2 groups [[threadgroups_per_grid]],
                                uint in_group [[thread_index_in_threadgroup]],
                                uint2 threads [[threads_per_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]]) {
  const uint start = group.x * rows.chunk;
  a += group.y * rows.strides[0] + start;
  b += group.y * rows.strides[1] + start;
  y += group.y * rows.strides[2] + start;
  float2 state = Step::begin();
  for (uint i = lane; i < groups.x; i += 32)
    state = Step::merge(state, states[group.y * groups.x + i]);
  state = Step::finish(Step::merge_simdgroup(state));
  write_row<Step, vectors>(state, a, b, y, min(rows.chunk, rows.columns - start), in_group,
                           threads.x);
}

// --- another dimension than the last ---------------------------------------------------

// `length` elements lie `inner` apart. Threads side by side take columns side by side; those of one
// column share its length, and merge their states through threadgroup memory.
struct Strided {
  uint length;
  uint inner;
};

template <typename A, typename Y, typename Step>
[[kernel]] void columns(device const A* a [[buffer(0)]], device const A* b [[buffer(1)]],
                        device Y* y [[buffer(2)]], constant Strided& sizes [[buffer(3)]],
                        uint3 in_grid [[thread_position_in_grid]],
                        uint3 in_group [[thread_position_in_threadgroup]],
                        uint3 threads [[threads_per_threadgroup]]) {
  threadgroup float2 partial[1024];
  const long start = long(in_grid.z) * sizes.length * sizes.inner + in_grid.x;
  const bool inside = in_grid.x < sizes.inner;
  const uint end = inside ? sizes.length : 0;
  a += start;
  b += start;
  y += start;
  float2 state = Step::begin();
  for (uint i = in_group.y; i < end; i += threads.y * 4) {
    float4 first = float4(Step::outside()), second = first;
    for (uint j = 0; j < 4; ++j) {
      const uint row = i + j * threads.y;
      if (row < end) first[j] = float(a[long(row) * sizes.inner]);
      if (row < end) second[j] = float(b[long(row) * sizes.inner]);
    }
    state = Step::add(state, first, second);
  }
  partial[in_group.y * threads.x + in_group.x] = state;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  state = partial[in_group.x];
  for (uint i = 1; i < threads.y; ++i)
    state = Step::merge(state, partial[i * threads.x + in_group.x]);
  state = Step::finish(state);
  for (uint row = in_group.y; row < end; row += threads.y) {
    const long at = long(row) * sizes.inner;
    y[at] = Y(Step::result(state, float4(float(a[at])), float4(float(b[at]))).x);
  }
}

// --- instances: <operator>_<strategy>[_<steps>][_<form>]_<dtype read>_<dtype written> ------------

#define INSTANCE(name, ...) \
  template [[host_name(name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define FORMS(op, Step, A, Y, form, vectors)                                 \
  INSTANCE(op "_single_simdgroup_2_" form "_" #A "_" #Y,                     \
           single_simdgroup<A, Y, Step<Y>, 2, vectors>)                      \
  INSTANCE(op "_single_simdgroup_4_" form "_" #A "_" #Y,                     \
           single_simdgroup<A, Y, Step<Y>, 4, vectors>)                      \
  INSTANCE(op "_single_group_2_" form "_" #A "_" #Y,                         \
           single_group<A, Y, Step<Y>, 2, vectors, false>)                   \
  INSTANCE(op "_single_group_4_" form "_" #A "_" #Y,                         \
           single_group<A, Y, Step<Y>, 4, vectors, false>)                   \
  INSTANCE(op "_single_group_8_" form "_" #A "_" #Y,                         \
           single_group<A, Y, Step<Y>, 8, vectors, false>)                   \
  INSTANCE(op "_looped_" form "_" #A "_" #Y, looped<A, Y, Step<Y>, vectors>) \
  INSTANCE(op "_two_phase_write_" form "_" #A "_" #Y, two_phase_write<A, Y, Step<Y>, vectors>)
#define STRATEGIES(op, Step, A, Y)       \
  FORMS(op, Step, A, Y, "vec4", true)    \
  FORMS(op, Step, A, Y, "scalar", false) \
  INSTANCE(op "_columns_" #A "_" #Y, columns<A, Y, Step<Y>>)
// 16 bytes an access, where a row is held.
#define EIGHT(op, Step, A)                                                                   \
  INSTANCE(op "_single_group_4_vec8_" #A "_" #A, single_group<A, A, Step<A>, 4, true, true>) \
  INSTANCE(op "_single_group_8_vec8_" #A "_" #A, single_group<A, A, Step<A>, 8, true, true>)
// Whole rows.
#define WHOLE(op, Step, A, alone)                                                        \
  INSTANCE(op "_single_group_8_whole_vec8_" #A "_" #A, whole_rows<A, Step<A>, 8, alone>) \
  INSTANCE(op "_single_group_4_whole_vec8_" #A "_" #A, whole_rows<A, Step<A>, 4, alone>)
#define REDUCE(op, Step, A)                                                         \
  INSTANCE(op "_two_phase_reduce_vec4_" #A, two_phase_reduce<A, Step<float>, true>) \
  INSTANCE(op "_two_phase_reduce_scalar_" #A, two_phase_reduce<A, Step<float>, false>)
#define REDUCED_ROWS(op, Step)         \
  STRATEGIES(op, Step, float, float)   \
  STRATEGIES(op, Step, half, half)     \
  STRATEGIES(op, Step, bfloat, bfloat) \
  EIGHT(op, Step, half)                \
  EIGHT(op, Step, bfloat)              \
  REDUCE(op, Step, float)              \
  REDUCE(op, Step, half)               \
  REDUCE(op, Step, bfloat)
