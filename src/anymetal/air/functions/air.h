// How a function that Apple's compiler left for the driver is defined: by its name in AIR.
#pragma once

// RESULT and parameters are those of the declaration in AIR; the body follows.
#define AIR(RESULT, NAME, SYMBOL, ...)                                                \
  extern "C" __attribute__((always_inline)) RESULT NAME(__VA_ARGS__) __asm__(SYMBOL); \
  RESULT NAME(__VA_ARGS__)

// M(name of the type in AIR, the type, a name for identifiers)
#define AIR_EACH_INTEGER(M) \
  M("s.i8", char, si8)      \
  M("u.i8", uchar, ui8)     \
  M("s.i16", short, si16)   \
  M("u.i16", ushort, ui16)  \
  M("s.i32", int, si32)     \
  M("u.i32", uint, ui32)    \
  M("s.i64", long, si64)    \
  M("u.i64", ulong, ui64)
