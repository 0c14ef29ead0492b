"""A profile and the table of chips go in; the time below which no run can come goes out.

A bound, not a prediction: every line of memory that the kernel touches is moved once, and every
operation is done at the full rate. It holds where the data come from memory, and not from a cache
that an earlier kernel filled.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anymetal.profiler.lines import KernelProfile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# What the fp32 rate is good for: exp and its like may have instructions of their own.
_COUNTED = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class Chip:
    """Of the largest configuration; None where no source says."""

    name: str
    source: Mapping[str, str] = field(default_factory=dict)
    cores: int | None = None
    bandwidth: float | None = None  # GB/s
    fp32: float | None = None  # TFLOP/s
    fp16: float | None = None
    launch: float | None = None  # microseconds of an empty launch
    matrix_units: bool = False


@dataclass(frozen=True)
class Bound:
    """Microseconds that a chip needs at least for each resource; None where that is unknown."""

    chip: Chip
    memory: float | None
    compute: float | None
    launch: float | None

    @property
    def least(self) -> float | None:
        known = [one for one in (self.memory, self.compute, self.launch) if one is not None]
        return max(known, default=None)

    @property
    def limit(self) -> str:
        """memory, compute or launch; "at least" where a rate of the chip is unknown."""
        times = {"memory": self.memory, "compute": self.compute, "launch": self.launch}
        known = {name: time for name, time in times.items() if time is not None}
        if not known:
            return "-"
        word = max(known, key=lambda name: known[name])
        return word if {"memory", "compute"} <= known.keys() else f"{word} at least"


@functools.cache
def chips() -> tuple[Chip, ...]:
    """The table, in its order."""
    text = (Path(__file__).parent / "chips.toml").read_text()
    return tuple(Chip(**row) for row in tomllib.loads(text)["chip"])


def operations(profile: KernelProfile) -> int:
    """Floating point operations, those of matrix products included."""
    done = profile.total.operations
    return sum(done[name] for name in (*_COUNTED, "matrix"))


def intensity(profile: KernelProfile) -> float | None:
    """Operations for each byte that must be moved."""
    done = operations(profile)
    return done / profile.touched_bytes if profile.touched_bytes and done else None


def bound(profile: KernelProfile, chip: Chip) -> Bound:
    """What a chip needs at least for all launches of a kernel."""
    done = profile.total.operations
    memory = compute = None
    if chip.bandwidth is not None:
        memory = profile.touched_bytes / chip.bandwidth / 1e3
    if chip.fp32 is not None:
        counted = sum(done[name] for name in _COUNTED)
        counted += 0 if chip.matrix_units else done["matrix"]
        compute = counted / chip.fp32 / 1e6
    launch = None if chip.launch is None else chip.launch * profile.launches
    return Bound(chip, memory, compute, launch)


def bounds(profile: KernelProfile) -> list[Bound]:
    return [bound(profile, chip) for chip in chips()]
