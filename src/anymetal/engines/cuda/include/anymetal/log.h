// Messages of a kernel: the engine refuses kernels that send any.
#pragma once
#include <anymetal/machine.h>

extern "C" void am_log();

AM_INLINE void am_write_log(int, const char*, const char*, const char*, const am_log_value*,
                            unsigned) {
  am_log();
}

// Compiled out, as on a Mac.
AM_INLINE void am_assert(bool, const char*, const char*, unsigned) {}
