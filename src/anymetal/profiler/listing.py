"""A profile as text that fits 80 columns, and as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from anymetal.evidence.tables import as_text, new_table
from anymetal.profiler.hints import hints
from anymetal.profiler.lines import ARITHMETIC, KernelProfile, LineProfile
from anymetal.profiler.roofline import Bound, bounds, intensity, operations

_UNITS = ("", "k", "M", "G", "T")
ASSUMPTIONS = (
    "Counts are exact, of the optimised code; memory moves in lines of 128 bytes; threadgroup"
    " memory has 32 banks of 4 bytes; caches are not modelled. A bound is the time below which no"
    " run can come, not a prediction."
)


def listing(profile: KernelProfile) -> str:
    """The annotated source, what could be better, and the bounds."""
    times = "1 launch" if profile.launches == 1 else f"{profile.launches} launches"
    head = f"{profile.name}: {times}, {profile.threads:,} threads"
    if profile.unprofiled:
        return f"{head}\n  not profiled: {profile.unprofiled}"
    parts: list[object] = [head, source_table(profile), summary(profile)]
    found = hints(profile)
    if found:
        parts += ["", "What could be better:", *(f"  {hint}" for hint in found)]
    parts += ["", bounds_table(profile), ASSUMPTIONS]
    return as_text(*parts)


def source_table(profile: KernelProfile) -> Table:
    """Every line of the source from the first with code to the last, with its figures."""
    shown = new_table(
        "line",
        right=("runs", "idle", "bytes", "×", "banks ×", "ops"),
        last="source",
    )
    shown.columns[-1].no_wrap, shown.columns[-1].overflow = False, "fold"
    for number in _shown_lines(profile):
        text = profile.source[number - 1] if number <= len(profile.source) else ""
        line = profile.lines.get(number)
        cells = _cells(line) if line else [""] * 6
        shown.add_row(str(number), *cells, text, style="red" if number in profile.never else "")
    return shown


def summary(profile: KernelProfile) -> str:
    """Totals, coverage and occupancy, in a few lines."""
    total = profile.total
    done = ", ".join(
        f"{name} {number(total.operations[name])}" for name in ARITHMETIC if total.operations[name]
    )
    texts = [
        f"device memory: {number(total.bytes['device'])} bytes asked for,"
        f" {number(total.moved_bytes)} moved, {number(profile.touched_bytes)} distinct",
        f"threadgroup memory: {number(total.bytes['threadgroup'])} bytes asked for,"
        f" {profile.threadgroup_bytes} a threadgroup; private: {number(total.bytes['private'])}",
        f"arithmetic: {done or 'none'}",
        f"barriers {number(total.barriers)}, collectives {number(total.collectives)},"
        f" atomics {number(sum(total.atomics.values()))}",
    ]
    if profile.threads_at_once is not None:
        texts.append(
            f"occupancy: {profile.groups_at_once} threadgroups, {profile.threads_at_once} threads"
            " a core of 32 KiB"
        )
    if profile.never:
        texts.append(f"never executed: lines {', '.join(map(str, profile.never))}")
    if profile.one_way:
        places = ", ".join(str(branch.line) for branch in profile.one_way)
        texts.append(f"branches that went one way only: lines {places}")
    return "\n".join(texts)


def bounds_table(profile: KernelProfile) -> Table:
    """The least time on each chip."""
    shown = new_table("chip", right=("memory µs", "compute µs", "launch µs", "least µs"), last="by")
    for one in bounds(profile):
        cells = (one.memory, one.compute, one.launch, one.least)
        shown.add_row(one.chip.name, *(_microseconds(time) for time in cells), one.limit)
    return shown


def as_data(profile: KernelProfile) -> dict[str, Any]:
    """Everything as numbers."""
    return {
        "kernel": profile.name,
        "file": profile.file,
        "launches": profile.launches,
        "threads": profile.threads,
        "not_profiled": profile.unprofiled or None,
        "lines": {str(n): line_data(line) for n, line in profile.lines.items()},
        "total": line_data(profile.total),
        "touched_bytes": profile.touched_bytes,
        "threadgroup_bytes": profile.threadgroup_bytes,
        "threadgroups_at_once": profile.groups_at_once,
        "threads_at_once": profile.threads_at_once,
        "never_executed": list(profile.never),
        "one_way_branches": [asdict(branch) for branch in profile.one_way],
        "operations": operations(profile),
        "operations_per_byte": intensity(profile),
        "hints": [asdict(hint) for hint in hints(profile)],
        "bounds": [_bound_data(one) for one in bounds(profile)],
    }


def line_data(line: LineProfile) -> dict[str, Any]:
    """One line's figures."""
    return {
        "executions": line.executions,
        "lanes": line.lanes,
        "idle": line.idle,
        "reads": dict(line.reads),
        "writes": dict(line.writes),
        "atomics": dict(line.atomics),
        "contended": line.contended,
        "bytes": dict(line.bytes),
        "moved_bytes": line.moved_bytes,
        "least_bytes": line.least_bytes,
        "bank_cycles": line.bank_cycles,
        "least_cycles": line.least_cycles,
        "operations": dict(line.operations),
        "barriers": line.barriers,
        "simdgroup_barriers": line.simdgroup_barriers,
        "collectives": line.collectives,
    }


def number(value: float) -> str:
    """1234567 as 1.23M: three digits, aligned in a column."""
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    return f"{value:.3g}{_UNITS[unit]}" if unit else f"{value:g}"


def _bound_data(one: Bound) -> dict[str, Any]:
    return {
        "chip": one.chip.name,
        "memory_microseconds": one.memory,
        "compute_microseconds": one.compute,
        "launch_microseconds": one.launch,
        "least_microseconds": one.least,
        "limit": one.limit,
        "sources": dict(one.chip.source),
    }


def _shown_lines(profile: KernelProfile) -> range:
    if not profile.lines:
        return range(0)
    return range(min(profile.lines), max(profile.lines) + 1)


def _cells(line: LineProfile) -> list[str]:
    asked = sum(line.bytes[memory] for memory in ("device", "constant", "threadgroup", "private"))
    return [
        number(line.executions) if line.executions else "never",
        f"{100 * line.idle:.0f}%" if line.slots else "",
        number(asked) if asked else "",
        f"{line.coalescing:.2g}" if line.coalescing else "",
        f"{line.bank_conflict:.2g}" if line.bank_conflict else "",
        number(line.arithmetic) if line.arithmetic else "",
    ]


def _microseconds(time: float | None) -> str:
    return "" if time is None else f"{time:.2f}"
