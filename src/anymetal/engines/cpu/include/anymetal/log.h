// One log message of a kernel, as the metal_logging header hands it to the engine's runtime.
//
// The text is formatted later, in Python (engines/cpu/log_format.py).
// The strings are literals of the kernel: they live as long as its code.
#pragma once
#include <anymetal/machine.h>

extern "C" {
// Appends a message to the launch's log. `level` is a metal::log_type; `subsystem` and `category`
// are null for os_log_default.
void am_log(am_group* group, int level, const char* subsystem, const char* category,
            const char* format, const am_log_value* values, unsigned count);
}

AM_INLINE void am_write_log(int level, const char* subsystem, const char* category,
                            const char* format, const am_log_value* values, unsigned count) {
  am_log(am_self()->group, level, subsystem, category, format, values, count);
}
