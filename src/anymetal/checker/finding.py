"""What the checker found: one Finding a defect, folded over all the places it was seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from anymetal.checker.scene import Scene
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
class Launched:
    """The launch that a finding was first seen in: its number in the check, counted from 1, the
    line of Python that called the kernel, and the pytest id of the test it ran in.

    `source` is where a text without a file of its own was given to `compile_shader`.
    """

    number: int
    caller: Position | None = None
    test: str | None = None
    source: Position | None = None


@dataclass(frozen=True)
class Finding:
    """One defect. `place` is the access that completes it, `other` the second one of a race.

    `kind` is the name of a row of `kinds`.
    `space` is the address space of the memory (device, constant, threadgroup or thread); hints name
    the memory flags by it. `scene` is what hints know of the kernel; reports do not keep it.
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
    launch: Launched | None = None
    scene: Scene | None = field(default=None, compare=False, repr=False)

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
