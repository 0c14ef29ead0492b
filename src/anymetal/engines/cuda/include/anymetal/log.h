// Messages of a kernel: each thread writes its own into one buffer of the module, which the host
// reads when the kernel has ended (engines/cuda/messages.py).
#pragma once
#include <anymetal/machine.h>

constexpr unsigned am_log_bytes = 1u << 20;

// One message; its values follow, then its three texts.
struct am_log_record {
  unsigned size;  // of all, a multiple of 8
  int level;
  unsigned count;
  unsigned group[3];
  unsigned index;  // of the thread in its threadgroup
  unsigned lengths[3];
};

struct am_log_buffer {
  unsigned used, dropped;
  char data[am_log_bytes];
};

typedef __attribute__((address_space(1))) char am_global_char;

extern "C" {
[[clang::loader_uninitialized]] inline
    __attribute__((address_space(1), aligned(8))) am_log_buffer am_log_messages;
}

AM_INLINE unsigned am_log_length(const char* text) {
  unsigned length = 0;
  while (text && text[length]) ++length;
  return length;
}

AM_INLINE am_global_char* am_log_copy(am_global_char* to, const char* from, unsigned size) {
  for (unsigned i = 0; i < size; ++i) to[i] = from[i];
  return to + size;
}

AM_INLINE void am_write_log(int level, const char* subsystem, const char* category,
                            const char* format, const am_log_value* values, unsigned count) {
  am_log_record record;
  record.level = level;
  record.count = count;
  record.group[0] = __nvvm_read_ptx_sreg_ctaid_x();
  record.group[1] = __nvvm_read_ptx_sreg_ctaid_y();
  record.group[2] = __nvvm_read_ptx_sreg_ctaid_z();
  record.index = am_simdgroup_index() * AM_SIMD_WIDTH + am_lane();
  record.lengths[0] = am_log_length(subsystem);
  record.lengths[1] = am_log_length(category);
  record.lengths[2] = am_log_length(format);
  unsigned size = sizeof(record) + count * sizeof(am_log_value) + record.lengths[0] +
                  record.lengths[1] + record.lengths[2];
  record.size = (size + 7) / 8 * 8;
  unsigned start = __atomic_fetch_add(&am_log_messages.used, record.size, __ATOMIC_RELAXED);
  if (start > am_log_bytes || record.size > am_log_bytes - start) {
    __atomic_fetch_add(&am_log_messages.dropped, 1u, __ATOMIC_RELAXED);
    return;
  }
  am_global_char* to = am_log_messages.data + start;
  to = am_log_copy(to, (const char*)&record, sizeof(record));
  to = am_log_copy(to, (const char*)values, count * sizeof(am_log_value));
  to = am_log_copy(to, subsystem, record.lengths[0]);
  to = am_log_copy(to, category, record.lengths[1]);
  am_log_copy(to, format, record.lengths[2]);
}

// Compiled out, as on a Mac.
AM_INLINE void am_assert(bool, const char*, const char*, unsigned) {}
