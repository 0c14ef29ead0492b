"""What the checker found: one Finding a defect, folded over all the places it was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anymetal.nouns import Position

Severity = Literal["error", "warning"]
Triple = tuple[int, int, int]


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

    `kind` is the name of a row of `kinds`.
    `space` is the address space of the memory (device, constant, threadgroup or thread); hints name
    the memory flags by it.
    """

    kind: str
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
