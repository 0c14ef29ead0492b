// Hints about device memory: an extension of Metal, which other compilers lack.
//
//   #if __has_include(<anymetal/ahead.h>)
//   #include <anymetal/ahead.h>
//   #endif
//
// anymetal_fetch_ahead(from): what lies around this place, up to the cache's line, will be read
// soon. anymetal_read_once(words, from): 16 bytes at a multiple of 16, which nobody writes during
// the launch and nobody reads again, go to an array of four uint. anymetal_write_once(to, a, b, c,
// d): four uint go to 16 bytes at a multiple of 16, which nobody reads soon.
// anymetal_forget(a, b, c, d): what was computed from these four uint is not kept, if that takes
// registers, but computed again. Nothing but time depends on these; CPUs take no notice.
#pragma once
#define anymetal_fetch_ahead(from) am_fetch_ahead(from)
#define anymetal_read_once(words, from) am_read_once(words, from)
#define anymetal_forget(a, b, c, d) am_forget(a, b, c, d)
#define anymetal_write_once(to, a, b, c, d) am_write_once(to, a, b, c, d)
