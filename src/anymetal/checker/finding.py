"""What the checker found: one Finding a defect, folded over all the places it was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from anymetal.nouns import Position

Kind = Literal[
    "out_of_bounds",
    "race",
    "barrier_divergence",
    "barrier_flags",
    "uninitialised",
    "unwritten_output",
    "misaligned",
    "element_size",
    "read_only",
    "limits",
    "collective_divergence",
    "arithmetic",
    "nan",
    "timeout",
    "silence",  # a comment that means to silence a finding and does not
]
Severity = Literal["error", "warning"]
Triple = tuple[int, int, int]

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Place:
    """Where one thread stood: its source position, itself, its threadgroup and its lane."""

    position: Position | None
    excerpt: str
    access: str
    thread: Triple | None
    threadgroup: Triple | None
    lane: int | None

    @property
    def line(self) -> int | None:
        return self.position.line if self.position else None

    @property
    def column(self) -> int | None:
        return self.position.column if self.position else None


@dataclass(frozen=True)
class Finding:
    """One defect. `place` is the access that completes it, `other` the second one of a race.

    `space` is the address space of the memory (device, constant, threadgroup or thread); hints name
    the memory flags by it.
    """

    kind: Kind
    severity: Severity
    kernel: str
    message: str
    place: Place
    other: Place | None = None
    buffer: str | None = None
    index: int | None = None
    count: int = 1
    hint: str = ""
    space: str | None = None

    @property
    def line(self) -> int | None:
        return self.place.line

    @property
    def column(self) -> int | None:
        return self.place.column

    @property
    def thread(self) -> Triple | None:
        return self.place.thread

    @property
    def threadgroup(self) -> Triple | None:
        return self.place.threadgroup

    @property
    def lane(self) -> int | None:
        return self.place.lane
