// One log message of a kernel, as the metal_logging header hands it to the engine's runtime.
//
// The text is formatted later, in Python (engines/cpu/log_format.py).
// The strings are literals of the kernel: they live as long as its code.
#pragma once
#include <anymetal/machine.h>

extern "C" {
// Appends a message of the thread at (x, y, z) of the grid to the launch's log. `level` is a
// metal::log_type; `subsystem` and `category` are null for os_log_default. For an assert that does
// not hold, they are its file and null, the format is its text, and the value its line.
void am_log(am_group* group, unsigned x, unsigned y, unsigned z, int level, const char* subsystem,
            const char* category, const char* format, const am_log_value* values, unsigned count);
}

// By value: what a thread's structure says of its position differs from lane to lane.
AM_INLINE unsigned am_log_position(const am_thread* thread, unsigned d) {
  return thread->group->position[d] * thread->group->nominal_size[d] + thread->position[d];
}

AM_INLINE void am_write_log(int level, const char* subsystem, const char* category,
                            const char* format, const am_log_value* values, unsigned count) {
  const am_thread* self = am_self();
  am_log(self->group, am_log_position(self, 0), am_log_position(self, 1), am_log_position(self, 2),
         level, subsystem, category, format, values, count);
}

AM_INLINE void am_assert(bool holds, const char* text, const char* file, unsigned line) {
  constexpr int kFailed = 5;
  if (holds) return;
  am_log_value place = {AM_LOG_UNSIGNED, sizeof(line), 1, {line}};
  am_write_log(kFailed, file, nullptr, text, &place, 1);
}
