// The checker as listener of a run: it keeps the time, and looks at how threads meet.
//
// Stands in place of engines/cpu/run_listener.h when the runtime is compiled for checking.
#pragma once

#include "findings.h"
#include "layout.h"
#include "plain_path.h"
#include "slow_path.h"
#include "state.h"
#include "system.h"

struct Listener {
  static constexpr unsigned long kWorthSharing = 0;  // Python knows
  static constexpr bool kMayGrow = false;            // there is a state for each worker, not more

  am_checked_launch* launch;

  void launch_started(unsigned worker, am_group& group, char* frames, unsigned long frame_bytes) {
    launch = (am_checked_launch*)group.listener_data + worker;
    group.listener_data = launch;
    am_checks& checks = launch->checks;
    for (unsigned i = 0; i < kDynamic; ++i)
      checks.regions[kFirstDynamic + i].low = group.dynamic_memory[i];
    for (unsigned i = 0; i < checks.static_count; ++i)
      checks.regions[kFirstStatic + i].low = group.threadgroup_memory + checks.static_offset[i];
    for (am_region& region : checks.regions) open_fast_path(region);
    if (launch->has_fences) publications.start_launch();
    launch->own[0] = {frames, frames + frame_bytes};
    char* here = (char*)__builtin_frame_address(0);
    launch->own[1] = {here - AM_STACK_BYTES, here};
  }

  void group_started(const am_group& group, unsigned long number) {
    am_checks& checks = launch->checks;
    launch->group = number;
    launch->group_threads = group.threads;
    if (launch->has_fences) publications.start_group();
    checks.group_first = checks.first[AM_THREADGROUP] = am_tick(checks);
    checks.ordered[AM_DEVICE] = checks.ordered[AM_THREADGROUP] = checks.executed = checks.epoch;
    launch->group_starts[number] = checks.epoch;
    for (unsigned s = 0; s < kMaxSimdgroups; ++s)
      launch->simd_ordered[0][s] = launch->simd_ordered[1][s] = launch->simd_executed[s] =
          checks.epoch;
  }

  bool group_finished(const am_group&) {
    judge_pending(*launch);
    compare_matrices();
    return !launch->is_screening || launch->findings.count == 0;
  }

  void barrier_reached(const am_group& group, const am_thread* threads) {
    judge_pending(*launch);
    compare_matrices();
    report_divergence(group, threads);
    unsigned flags = ~0u;
    for (unsigned i = 0; i < group.threads; ++i)
      if (threads[i].site != AM_FINISHED) flags &= flags_at(threads[i].site);
    am_checks& checks = launch->checks;
    checks.executed = am_tick(checks);
    if (launch->has_fences) publications.meet();
    if (flags & AM_ORDERS_DEVICE) checks.ordered[AM_DEVICE] = checks.epoch;
    if (flags & AM_ORDERS_THREADGROUP) checks.ordered[AM_THREADGROUP] = checks.epoch;
  }

  void lanes_met(const am_simdgroup& simd, const am_thread* lanes, unsigned site, unsigned active) {
    judge_pending(*launch);
    unsigned kind = site & AM_WAIT_MASK;
    if (kind == AM_LOOP_END) return;
    if (!is_complete(simd, kind, site, active)) report_partial(lanes, site, active);
    if (launch->has_shuffles) look_at_sources(simd, lanes, site, active);
    if (kind != AM_SIMDGROUP_BARRIER) return;
    unsigned flags = flags_at(site);
    unsigned epoch = am_tick(launch->checks);
    launch->simd_executed[simd.index] = epoch;
    if (flags & AM_ORDERS_DEVICE) launch->simd_ordered[AM_DEVICE][simd.index] = epoch;
    if (flags & AM_ORDERS_THREADGROUP) launch->simd_ordered[AM_THREADGROUP][simd.index] = epoch;
  }

 private:
  // Whether all lanes are there: of the simdgroup, or of every quad that is there at all.
  bool is_complete(const am_simdgroup& simd, unsigned kind, unsigned site, unsigned active) const {
    if (kind == AM_COLLECTIVE && flags_at(site) & kOfQuads) {
      unsigned any = (active | active >> 1 | active >> 2 | active >> 3) & 0x11111111;
      return active == any * 0xf;
    }
    return active == (simd.threads == AM_SIMD_WIDTH ? ~0u : (1u << simd.threads) - 1);
  }

  // The memory flags that the barrier of a site was given.
  unsigned flags_at(unsigned site) const {
    return launch->suspends[site >> AM_WAIT_BITS] >> AM_WAIT_BITS;
  }

  // Threads at different barriers are an error, and so is a barrier that some have not come to
  // before they ended; that some returned early, a warning.
  void report_divergence(const am_group& group, const am_thread* threads) {
    const am_thread* first = nullptr;
    unsigned returned = 0, passed = 0, ended_thread = kNoThread;
    for (unsigned i = 0; i < group.threads; ++i) {
      const am_thread& thread = threads[i];
      if (thread.site == AM_FINISHED) {
        bool early = launch->returned[i] == launch->checks.group_first;
        ++(early ? returned : passed);
        if (!early || ended_thread == kNoThread) ended_thread = i;
      } else if (!first) {
        first = &thread;
      } else if (thread.site != first->site) {
        report(AM_ERROR, AM_BARRIER_DIVERGENCE, thread.site, i, first->site >> AM_WAIT_BITS,
               first->index, 0);
        launch->diverged = launch->checks.group_first;
        return;
      }
    }
    // That threads miss each other from then on is no news.
    if ((passed || returned) && launch->diverged != launch->checks.group_first)
      report(passed ? AM_ERROR : AM_WARNING, AM_BARRIER_DIVERGENCE, first->site, first->index,
             kNoSite16, ended_thread, passed ? passed : returned);
  }

  // Lanes that are read from must be there. `extra` is the first that is not.
  void look_at_sources(const am_simdgroup& simd, const am_thread* lanes, unsigned site,
                       unsigned active) {
    launch->has_shuffles = 0;
    for (unsigned lane = 0; lane < simd.threads; ++lane) {
      unsigned thread = lanes[lane].index, source = launch->shuffles[thread] - 1;
      if (!(active >> lane & 1) || source == ~0u) {
        launch->has_shuffles |= source != ~0u;
        continue;
      }
      launch->shuffles[thread] = 0;
      if (source >= AM_SIMD_WIDTH)
        report(AM_ERROR, AM_SHUFFLE, site, thread, kNoSite16, kNoThread, source - AM_SIMD_WIDTH);
      else if (!(active >> source & 1))
        report(AM_WARNING, AM_SHUFFLE, site, thread, kNoSite16, kNoThread, source);
    }
  }

  // All lanes of a simdgroup must have loaded and stored the same matrices, and all must be there.
  void compare_matrices() {
    if (!launch->has_matrices) return;
    launch->has_matrices = 0;
    for (unsigned first = 0; first < launch->group_threads; first += AM_SIMD_WIDTH) {
      unsigned end = first + AM_SIMD_WIDTH, did = kNoThread, mask = 0;
      bool same = end <= launch->group_threads;
      for (unsigned t = first; t < end && t < launch->group_threads; ++t) {
        same = same && launch->matrices[t] == launch->matrices[first];
        if (launch->matrices[t] && did == kNoThread) did = t;
      }
      if (did == kNoThread) continue;
      unsigned matrices = launch->matrices[did];
      for (unsigned t = first; t < end && t < launch->group_threads; ++t) {
        mask |= (unsigned)(launch->matrices[t] == matrices) << (t - first);
        launch->matrices[t] = 0;
      }
      if (!same)
        report(AM_ERROR, AM_COLLECTIVE_DIVERGENCE, launch->last_matrix[did] << AM_WAIT_BITS, did,
               kNoSite16, kNoThread, mask);
    }
  }

  void report_partial(const am_thread* lanes, unsigned site, unsigned active) {
    unsigned thread = lanes[__builtin_ctz(active)].index;
    report(AM_WARNING, AM_COLLECTIVE_DIVERGENCE, site, thread, kNoSite16, kNoThread, active);
  }

  void report(unsigned severity, unsigned kind, unsigned site, unsigned thread, unsigned other_site,
              unsigned other_thread, unsigned extra) {
    am_finding finding = {};
    finding.kind = kind;
    finding.severity = severity;
    finding.site = site >> AM_WAIT_BITS;
    finding.other_site = other_site;
    finding.region = kUnknownRegion;
    finding.thread = thread;
    finding.other_thread = other_thread;
    finding.group = finding.other_group = launch->group;
    finding.extra = extra;
    add(launch->findings, finding);
  }
};
