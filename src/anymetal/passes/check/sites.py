"""What the instrumenting pass leaves behind: sites by their numbers, and the memory of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

from anymetal.ir import Instruction
from anymetal.passes.check.debug_info import Spot
from anymetal.passes.provenance import Root


@dataclass(frozen=True)
class AccessSite:
    """What a site number in a finding stands for."""

    spots: tuple[Spot, ...]
    kind: int
    element: int
    align: int
    use: int
    root: Root
    what: str
    instruction: Instruction


@dataclass
class Instrumented:
    """What the pass did: every site by its number, and the memory that the kernel touches."""

    sites: list[AccessSite] = field(default_factory=list)
    static_slots: list[int] = field(default_factory=list)
    smallest: dict[Root, int] = field(default_factory=dict)
    units: dict[Root, int] = field(default_factory=dict)  # accesses start and end at multiples
    written_to: set[Root] = field(default_factory=set)
    computed: set[Root] = field(default_factory=set)  # where not all accesses move bits
    has_fences: bool = False
    has_calls: bool = False  # of functions that could not be inlined
    largest: int = 0  # bytes that one access touches
    matrices: list[tuple[Spot, ...]] = field(default_factory=list)
