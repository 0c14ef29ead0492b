"""What hints know of a kernel besides the finding: the author's names, and how two accesses lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from anymetal.nouns import Position

Order = Literal["ahead", "around", "ahead and around", "apart", "update", "unknown"]
"""How a thread comes from one access of a race to the other without a barrier on its way: straight
ahead, only by another round of a loop, by both ways, or not at all (two branches of a condition).
An update reads and writes one place."""


@dataclass(frozen=True)
class Between:
    """Where a barrier is missing: behind one place and before another, and the loop that both
    accesses are in, where a round of it needs one too."""

    order: Order
    first: Position | None = None
    second: Position | None = None
    loop: Position | None = None


@dataclass(frozen=True)
class Scene:
    """The names that the author gave to what hints speak of; empty where there is none."""

    in_grid: str = ""
    in_group: str = ""
    counts: tuple[str, ...] = ()
    between: Between | None = None

    def moved(self, where: Callable[[Position | None], Position | None]) -> Scene:
        """The same with each place put through a function."""
        if self.between is None:
            return self
        places = (self.between.first, self.between.second, self.between.loop)
        return replace(self, between=Between(self.between.order, *map(where, places)))
