// What a checked launch found, folded: equal findings are counted, the first is kept in full.
#pragma once

#include "state.h"

inline bool equal(const am_finding& a, const am_finding& b) {
  return a.kind == b.kind && a.severity == b.severity && a.site == b.site &&
         a.other_site == b.other_site && a.region == b.region && a.access == b.access;
}

inline void add(am_findings& findings, const am_finding& finding) {
  for (unsigned long i = 0; i < findings.count; ++i)
    if (equal(findings.entries[i], finding)) {
      ++findings.entries[i].count;
      return;
    }
  if (findings.count == kMaxFindings) {
    ++findings.dropped;
    return;
  }
  findings.entries[findings.count] = finding;
  findings.entries[findings.count++].count = 1;
}
