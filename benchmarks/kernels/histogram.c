// How often each byte occurs; a piece is 64 bytes. Four tables, so that equal neighbours do not
// wait for one another, added to the result at the end.
#define BINS 256

void histogram(void* const* arguments, long begin, long end) {
  const unsigned char* data = arguments[0];
  unsigned* counts = arguments[1];
  unsigned tables[4][BINS] = {{0}};
  for (long i = begin * 64; i < end * 64; i += 8) {
    const unsigned long bytes = *(const unsigned long*)(data + i);
    for (int part = 0; part < 8; ++part) ++tables[part % 4][bytes >> (8 * part) & 255];
  }
  for (int bin = 0; bin < BINS; ++bin) {
    unsigned total = tables[0][bin] + tables[1][bin] + tables[2][bin] + tables[3][bin];
    __atomic_fetch_add(&counts[bin], total, __ATOMIC_RELAXED);
  }
}
