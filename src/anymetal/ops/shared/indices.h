// Indices of 32 or 64 bits: both are read as words of 32, so that a kernel needs no instance each.
#pragma once
#include <c10/metal/error.h>

#include "shared/types.h"

inline long index_at(device const int* indices, ulong at, bool wide) {
  if (!wide) return indices[at];
  return long(uint(indices[2 * at])) | (long(indices[2 * at + 1]) << 32);
}
