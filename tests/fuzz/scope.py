"""What the generator knows at a place of the kernel: who is there, and what may be named."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from .tree import Expression, Memory

# Who surely is at a place together, or sees the same value: all threads of the threadgroup that
# have not returned, those of the simdgroup, or nobody in particular.
GROUP, SIMD, LANE = 0, 1, 2


@dataclass(frozen=True)
class Local:
    """A variable in sight. `level` says who sees the same value."""

    name: str
    type: str
    mutable: bool = True
    level: int = LANE


@dataclass(frozen=True)
class LocalArray:
    """A private array, or a pointer parameter, in sight."""

    name: str
    type: str
    size: int
    mutable: bool = True


@dataclass
class Scope:
    """One block. Inner blocks copy it, so that what they declare ends with them."""

    locals: list[Local] = field(default_factory=list)
    arrays: list[LocalArray] = field(default_factory=list)
    level: int = GROUP
    depth: int = 0
    rounds: int = 1
    loop: str = ""
    """Whether the innermost loop is `uniform` or `varying`; empty outside of loops."""
    loop_level: int = LANE
    """Who goes round the innermost loop together. There may be a barrier for them in it."""
    counter: Local | None = None
    """What changes from round to round of the innermost loop."""
    in_switch: bool = False
    in_function: bool = False
    collectives: bool = True
    shared_readable: bool = True
    """Whether threadgroup arrays may be read: not while others may be writing."""

    def inner(self, **changes: object) -> Scope:
        lists = {"locals": list(self.locals), "arrays": list(self.arrays)}
        return dataclasses.replace(self, **{"depth": self.depth + 1, **lists, **changes})

    def of_type(self, kind: str, level: int = LANE) -> list[Local]:
        return [local for local in self.locals if local.type == kind and local.level <= level]


@dataclass(frozen=True)
class Output:
    """An output buffer: every thread has `slots` elements of its own."""

    memory: Memory
    slots: int
    layout: str
    shift: int


@dataclass(frozen=True)
class Bounded:
    """An index expression that stays below `limit` by itself."""

    expression: Expression
    limit: int
