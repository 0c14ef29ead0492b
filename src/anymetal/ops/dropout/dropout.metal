// Dropout whose mask is never stored: element i is kept or not by word i % 4 of Philox 4x32-10 with
// counter i / 4 and the seed as key, so that the gradient finds the same mask again.
#include "shared/philox.h"

struct Dropping {
  uint elements;
  uint dropped_below;  // words below it drop their element; all ones drops every element
  uint has_residual;
  float scale;  // of elements that are kept
};

// Four elements a thread: those of one counter.
template <typename T>
[[kernel]] void dropout(device const T* x [[buffer(0)]], device const T* residual [[buffer(1)]],
                        device const int* seed [[buffer(2)]], device T* y [[buffer(3)]],
                        constant Dropping& numbers [[buffer(4)]],
                        uint in_grid [[thread_position_in_grid]]) {
  const uint4 words = philox(uint4(in_grid, 0, 0, 0), uint2(uint(seed[0]), uint(seed[1])));
  for (uint i = 0; i < 4; ++i) {
    const uint at = in_grid * 4 + i;
    if (at >= numbers.elements) return;
    const bool kept = words[i] >= numbers.dropped_below && numbers.dropped_below != 0xFFFFFFFFu;
    const float value = kept ? float(x[at]) * numbers.scale : 0.0f;
    y[at] = T(numbers.has_residual ? value + float(residual[at]) : value);
  }
}
INSTANTIATE(dropout)
