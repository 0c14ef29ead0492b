// What a checked launch found, folded: equal findings are counted, the first is kept in full.
#pragma once

#include "state.h"

enum am_kind : unsigned {
  AM_OUT_OF_BOUNDS,
  AM_RACE,
  AM_BARRIER_DIVERGENCE,
  AM_BARRIER_FLAGS,
  AM_UNINITIALISED,
  AM_MISALIGNED,
  AM_READ_ONLY,
  AM_COLLECTIVE_DIVERGENCE,
  AM_ARITHMETIC,
  AM_NAN,
};
enum am_severity : unsigned { AM_WARNING, AM_ERROR };

constexpr unsigned kNoSite16 = 0xffff;
constexpr unsigned kNoThread = ~0u;

struct am_finding {
  unsigned kind;
  unsigned severity;
  unsigned site;        // of an access, or of a suspend for the two kinds of divergence
  unsigned other_site;  // kNoSite16: there is none
  unsigned region;
  unsigned access;        // am_access of the one that completes it
  unsigned other_access;  // and of the other
  unsigned thread;        // index in its threadgroup
  unsigned other_thread;  // kNoThread: one of several
  unsigned extra;         // active lanes of a collective, or threads that had ended
  unsigned long group;
  unsigned long other_group;
  long offset;  // bytes from the start of the region or array
  unsigned long size;
  unsigned long count;
};

constexpr unsigned kMaxFindings = 1024;

struct am_findings {
  unsigned long count;
  unsigned long dropped;
  am_finding entries[kMaxFindings];

  static bool equal(const am_finding& a, const am_finding& b) {
    return a.kind == b.kind && a.severity == b.severity && a.site == b.site &&
           a.other_site == b.other_site && a.region == b.region && a.access == b.access;
  }

  void add(const am_finding& finding) {
    for (unsigned long i = 0; i < count; ++i)
      if (equal(entries[i], finding)) {
        ++entries[i].count;
        return;
      }
    if (count == kMaxFindings) {
      ++dropped;
      return;
    }
    entries[count] = finding;
    entries[count++].count = 1;
  }
};
