"""Figures of lines go in; what could be better comes out, each with the figure it would save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anymetal.engines.profiled import SiteRun
from anymetal.profiler.lines import LINE_BYTES, KernelProfile

# A figure below these is not worth a word.
_TIMES = 1.5
_IDLE = 0.25
_CONTENDED = 4.0
_ALL_OF_IT = 0.9
_FEW_THREADS = 512


@dataclass(frozen=True)
class Hint:
    """What is slow at a line, and how much less there could be."""

    kind: str
    line: int
    text: str
    saves: int
    unit: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text} (saves {self.saves:,} {self.unit})"


def hints(profile: KernelProfile) -> list[Hint]:
    """All of them, in the order of lines."""
    found = [
        *_memory(profile),
        *_banks(profile),
        *_divergence(profile),
        *_passes(profile),
        *_atomics(profile),
        *_private(profile),
        *_occupancy(profile),
    ]
    return sorted(found, key=lambda hint: hint.line)


def _memory(profile: KernelProfile) -> Iterator[Hint]:
    """The worst access of each line."""
    for number, line in profile.lines.items():
        site = max(line.sites, key=lambda one: one.moved - one.least, default=None)
        if site is None or site.moved < _TIMES * site.least:
            continue
        times, saves = site.moved / site.least, (site.moved - site.least) * LINE_BYTES
        if _is_shifted(site):
            text = f"{_name(site, profile)}is used from within a line of 128 bytes on:"
            text += f" {times:.2g}x the bytes; begin rows at multiples of 128 bytes"
            yield Hint("alignment", number, text, saves, "bytes")
            continue
        text = f"{_apart(site, profile)}: {times:.2g}x the bytes; let neighbouring threads take"
        text += " neighbouring elements, or swap the loops"
        yield Hint("coalescing", number, text, saves, "bytes")


def _is_shifted(site: SiteRun) -> bool:
    """Whether lanes lie side by side, and only begin in the wrong place."""
    dense = not site.regular or abs(site.stride) == site.size
    return dense and site.moved <= 2 * site.least


def _apart(site: SiteRun, profile: KernelProfile) -> str:
    """How the lanes of an access lie."""
    if not site.regular:
        return f"lanes touch {_name(site, profile)}in places far apart"
    verb = {"read": "reads", "write": "writes", "atomic": "changes"}[site.kind]
    elements, rest = divmod(abs(site.stride), site.size or 1)
    distance = f"{elements} elements" if not rest else f"{abs(site.stride)} bytes"
    return f"each lane {verb} {_name(site, profile)}{distance} apart"


def _name(site: SiteRun, profile: KernelProfile) -> str:
    name = profile.buffer_names.get(site.buffer)
    return f"'{name}' " if name else ""


def _banks(profile: KernelProfile) -> Iterator[Hint]:
    for number, line in profile.lines.items():
        times = line.bank_conflict
        if times is not None and times >= _TIMES:
            text = (
                f"{line.worst_bank}-way bank conflict in threadgroup memory; pad the rows by one"
                " element"
            )
            yield Hint("banks", number, text, line.bank_cycles - line.least_cycles, "cycles")


def _divergence(profile: KernelProfile) -> Iterator[Hint]:
    """The first line of each stretch where lanes idle; those that the grid lacks do not count."""
    missing = min((line.idle for line in profile.lines.values() if line.slots), default=0.0)
    before = False
    for number, line in profile.lines.items():
        idle = line.idle - missing
        if line.slots and idle >= _IDLE and not before:
            text = f"{100 * line.idle:.0f} % of the lanes idle from here"
            yield Hint("divergence", number, text, line.slots - line.busy, "lane operations")
        before = bool(line.slots) and idle >= _IDLE


def _passes(profile: KernelProfile) -> Iterator[Hint]:
    for buffer, size in profile.buffer_bytes.items():
        whole = [
            number
            for number, line in profile.lines.items()
            if line.buffers[buffer] >= _ALL_OF_IT * size
        ]
        if size >= LINE_BYTES and len(whole) > 1:
            name = profile.buffer_names.get(buffer, f"buffer {buffer}")
            words = {2: "two", 3: "three"}.get(len(whole), str(len(whole)))
            others = ", ".join(map(str, whole[:-1]))
            text = f"{words} passes over {name}, the first in line {others}; keep what was read"
            yield Hint("passes", whole[-1], text, (len(whole) - 1) * size, "bytes")


def _atomics(profile: KernelProfile) -> Iterator[Hint]:
    for number, line in profile.lines.items():
        if not line.atomic_executions:
            continue
        waiting = line.contended / line.atomic_executions
        if waiting >= _CONTENDED:
            text = (
                f"{waiting:.3g} lanes of a simdgroup wait for one address; combine them first"
                " (simd_sum), then one atomic"
            )
            saved = line.contended - line.atomic_executions
            yield Hint("atomics", number, text, saved, "atomics")


def _private(profile: KernelProfile) -> Iterator[Hint]:
    for number, line in profile.lines.items():
        moved = line.bytes["private"]
        if moved:
            text = "an array of the thread is indexed at run time and lies in memory; unroll"
            yield Hint("private", number, text, moved, "bytes")


def _occupancy(profile: KernelProfile) -> Iterator[Hint]:
    threads = profile.threads_at_once
    if threads is not None and threads < _FEW_THREADS and profile.lines:
        text = (
            f"threadgroup memory ({profile.threadgroup_bytes} bytes) leaves room for {threads}"
            " threads on a core with 32 KiB"
        )
        line = next(iter(profile.lines))
        yield Hint("occupancy", line, text, profile.threadgroup_bytes, "bytes a threadgroup")
