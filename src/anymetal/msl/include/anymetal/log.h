// One log message of a kernel, as the metal_logging header hands it to the engine's runtime.
//
// The text is formatted later, in Python (engines/cpu/log_format.py mirrors this structure).
// The strings are literals of the kernel: they live as long as its code.
#pragma once
#include <anymetal/machine.h>

// What the bits of an argument mean.
enum am_log_kind : unsigned {
  AM_LOG_SIGNED = 0,
  AM_LOG_UNSIGNED = 1,
  AM_LOG_FLOAT = 2,   // binary floating point of `size` bytes: half or float
  AM_LOG_BFLOAT = 3,  // upper half of a float
  AM_LOG_POINTER = 4,
};

// One argument: `count` elements of `size` bytes each, packed in `bits` from its first byte on.
struct am_log_value {
  unsigned kind;
  unsigned short size;
  unsigned short count;  // 1 for a scalar, 2 to 4 for a vector
  unsigned long bits[4];
};
static_assert(sizeof(am_log_value) == 40);

extern "C" {
// Appends a message to the launch's log. `level` is a metal::log_type; `subsystem` and `category`
// are null for os_log_default.
void am_log(am_group* group, int level, const char* subsystem, const char* category,
            const char* format, const am_log_value* values, unsigned count);
}
