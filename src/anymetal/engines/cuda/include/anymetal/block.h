// The kernel as the driver starts it: from its block of arguments to a thread and its parameters.
#pragma once
#include <anymetal/entry.h>

// What the host fills for a launch (engines/cuda/block.py). A value is read where its address is 0;
// one of more than ValueBytes is in device memory.
template <unsigned Buffers, unsigned Values, unsigned Arrays, unsigned ValueBytes>
struct am_block {
  unsigned grid[3];
  unsigned group_size[3];
  // Along y and z the hardware takes few threadgroups, and a large grid is launched in parts: the
  // first threadgroup of this one.
  unsigned first_across[2];
  unsigned arrays[Arrays];  // where each [[threadgroup(n)]] parameter begins
  unsigned long addresses[Buffers ? Buffers : 1];
  struct alignas(16) {
    char bytes[ValueBytes];
  } values[Values ? Values : 1];
};

// Whether the code is for usual launches alone: all threadgroups are whole, and made of whole
// simdgroups; constants that fit the block are values. The engine answers.
extern "C" __attribute__((const)) bool am_is_usual();

// A source that defines it promises that its vectors are aligned (anymetal/ahead.h). The kernel
// then begins with a call that tells the engine, which takes it away.
struct am_vectors_are_aligned;
template <class T>
concept am_is_complete = requires { sizeof(T); };
extern "C" void am_promise_alignment();

typedef __attribute__((address_space(1))) void* am_global;

AM_INLINE void* am_address(unsigned long address) { return (void*)(am_global)address; }
AM_INLINE void* am_array(unsigned offset) { return (void*)(am_dynamic_memory + offset); }

template <unsigned long Size>
struct am_piece {
  typedef unsigned type;
};
template <>
struct am_piece<1> {
  typedef unsigned char type;
};
template <>
struct am_piece<2> {
  typedef unsigned short type;
};

// A T of device memory, read as such: a load that may be from anywhere is a slow one.
template <class T>
AM_INLINE T am_read(unsigned long address) {
  typedef typename am_piece<alignof(T)>::type Piece;
  struct {
    alignas(T) Piece pieces[sizeof(T) / sizeof(Piece)];
  } copy;
#pragma clang loop unroll(full)
  for (unsigned long i = 0; i < sizeof(T) / sizeof(Piece); ++i)
    copy.pieces[i] = ((const __attribute__((address_space(1))) Piece*)address)[i];
  return __builtin_bit_cast(T, copy);
}

// A parameter `constant T&`: a small T is passed by value, unless its address is given.
template <class Parameter>
struct am_constant;
template <class T>
struct am_constant<const T&> {
  template <unsigned long ValueBytes>
  static AM_INLINE auto from(unsigned long address, const char (&value)[ValueBytes])
      -> decltype(auto) {
    if constexpr (sizeof(T) > ValueBytes)
      return *static_cast<const T*>(am_address(address));
    else
      return !am_is_usual() && address ? am_read<T>(address)
                                       : T(*reinterpret_cast<const T*>(value));
  }
};

// Fills the thread's group and place in it; false for threads that fill up the last warp.
template <class Block>
AM_INLINE bool am_start(const Block& block, am_group& group, am_thread& self) {
  unsigned position[3];
  position[0] = __nvvm_read_ptx_sreg_ctaid_x();
  position[1] = block.first_across[0] + __nvvm_read_ptx_sreg_ctaid_y();
  position[2] = block.first_across[1] + __nvvm_read_ptx_sreg_ctaid_z();
#pragma clang loop unroll(full)
  for (int i = 0; i < 3; ++i) {
    unsigned nominal = block.group_size[i], left = block.grid[i] - position[i] * nominal;
    group.position[i] = position[i];
    group.groups[i] = i == 0 ? __nvvm_read_ptx_sreg_nctaid_x()
                             : block.grid[i] / nominal + (block.grid[i] % nominal != 0);
    group.grid[i] = block.grid[i];
    group.nominal_size[i] = nominal;
    group.size[i] = am_is_usual() || left >= nominal ? nominal : left;
  }
  group.threads = group.size[0] * group.size[1] * group.size[2];
  group.simdgroups = (group.threads + 31) / 32;
  group.nominal_simdgroups =
      (block.group_size[0] * block.group_size[1] * block.group_size[2] + 31) / 32;
  unsigned place = __nvvm_read_ptx_sreg_tid_x();
  self.lane = am_lane();
  self.index = (place & ~31u) | self.lane;
  self.group = &group;
  self.position[0] = self.index;
  self.position[1] = self.position[2] = 0;
  if (block.group_size[1] * block.group_size[2] != 1) {
    unsigned row = self.index / group.size[0];
    self.position[0] = self.index % group.size[0];
    self.position[1] = row % group.size[1];
    self.position[2] = row / group.size[1];
  }
  return am_is_usual() || self.index < group.threads;
}
