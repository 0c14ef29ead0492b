// What every header of the stand-ins begins with. For a Mac the real libobjc and libdispatch
// headers are underneath; for Linux, gcc's libobjc.
#pragma once

#include <dispatch/dispatch.h>
#import <objc/objc.h>
#import <objc/runtime.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __APPLE__
#import <objc/NSObject.h>
#define AM_STORAGE
#else
#include <limits.h>
#include <time.h>
#undef nil
#undef Nil
#define nil nullptr
#define Nil nullptr
typedef long NSInteger;
typedef unsigned long NSUInteger;
#define NSIntegerMax LONG_MAX
#define NSUIntegerMax ULONG_MAX
#define CLOCK_UPTIME_RAW CLOCK_MONOTONIC_RAW
static inline uint64_t clock_gettime_nsec_np(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}
// gcc's runtime wants the instance variables of a class where it is declared.
#define AM_STORAGE \
  {                \
   @public         \
    void* _am;     \
  }
#endif

#ifndef NS_ENUM
#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
#endif
// As Apple's own macro for C++: the options of a set are numbers that can be combined.
#undef NS_OPTIONS
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum __attribute__((flag_enum)) : type
#ifndef NS_ASSUME_NONNULL_BEGIN
#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#endif
#ifndef API_AVAILABLE
#define API_AVAILABLE(...)
#endif
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif

typedef struct _NSZone NSZone;
typedef double NSTimeInterval;
typedef double CFTimeInterval;
typedef struct _NSRange {
  NSUInteger location;
  NSUInteger length;
} NSRange;
static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
  NSRange range = {location, length};
  return range;
}
