// Where os_log messages of a launch are collected until Python formats them.
#pragma once

#include <anymetal/log.h>

#include "layout.h"
#include "system.h"

constexpr unsigned long kLogLimit = 16ul << 20;

inline bool reserve_log(LogSink& sink, unsigned long bytes) {
  if (sink.size + bytes <= sink.capacity) return true;
  unsigned long capacity = sink.capacity ? sink.capacity * 2 : 65536;
  while (capacity < sink.size + bytes) capacity *= 2;
  if (capacity > kLogLimit) return false;
  char* data = (char*)realloc(sink.data, capacity);
  if (!data) return false;
  sink.data = data;
  sink.capacity = capacity;
  return true;
}

inline void append_log(LogSink& sink, const LogRecord& record, const am_log_value* values) {
  while (__atomic_exchange_n(&sink.locked, 1u, __ATOMIC_ACQUIRE)) {
  }
  unsigned long bytes = sizeof(record) + record.count * sizeof(am_log_value);
  if (reserve_log(sink, bytes)) {
    memcpy(sink.data + sink.size, &record, sizeof(record));
    memcpy(sink.data + sink.size + sizeof(record), values, record.count * sizeof(am_log_value));
    sink.size += bytes;
  } else {
    ++sink.dropped;
  }
  __atomic_store_n(&sink.locked, 0u, __ATOMIC_RELEASE);
}
