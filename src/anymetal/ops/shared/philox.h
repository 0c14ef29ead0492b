// Philox 4x32-10: random words from a counter and a key, the same in whatever order threads run
// (Salmon et al., Parallel random numbers: as easy as 1, 2, 3).
#pragma once
#include "shared/types.h"

inline uint4 philox(uint4 counter, uint2 key) {
  for (uint round = 0; round < 10; ++round) {
    const uint2 high = uint2(mulhi(0xD2511F53u, counter.x), mulhi(0xCD9E8D57u, counter.z));
    const uint2 low = uint2(0xD2511F53u * counter.x, 0xCD9E8D57u * counter.z);
    counter = uint4(high.y ^ counter.y ^ key.x, low.y, high.x ^ counter.w ^ key.y, low.x);
    key += uint2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}
