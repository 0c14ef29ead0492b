// Who is told what happens in a run. Nobody, here: the calls vanish.
//
// The checker compiles the same runtime with a run_listener.h of its own in front of this one.
#pragma once

#include <anymetal/machine.h>

struct Listener {
  // Below this many threads in the grid, waking other processors costs more than it gives.
  static constexpr unsigned long kWorthSharing = 8192;
  // More workers than the launch has asked for may take part, where those wait for each other.
  static constexpr bool kMayGrow = true;

  // A worker of the launch, by its number, is about to take threadgroups. `group.listener_data` is
  // what the launch brought for its listener.
  void launch_started(unsigned worker, am_group&, char* frames, unsigned long frame_bytes) {}
  void group_started(const am_group&, unsigned long number) {}
  // Whether the run goes on.
  bool group_finished(const am_group&) { return true; }
  // All live threads of the threadgroup stand at barriers, and will go on together.
  void barrier_reached(const am_group&, const am_thread* threads) {}
  // The lanes in `active` stand at `site` and will go on together.
  void lanes_met(const am_simdgroup&, const am_thread* lanes, unsigned site, unsigned active) {}
};
