"""The structures that the workers of a checked launch work on: regions, shadow cells, clocks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from anymetal.checker import records
from anymetal.checker.aliasing import aliased
from anymetal.checker.element_types import numbers_of
from anymetal.checker.layouts import gaps_of, takes_strides
from anymetal.checker.program import CheckedProgram
from anymetal.checker.records import CheckedLaunch, RawFinding, Region, Watch
from anymetal.checker.shadow_memory import Arena, Cells, Need, Sink
from anymetal.checker.views import BufferView
from anymetal.machine import shadow
from anymetal.machine.shadow import Memory
from anymetal.passes.provenance import UNKNOWN, Root

_arena = Arena()
_sink = Sink()
# Variables of threadgroups get made-up addresses: their cells never overlap.
_APART = 1 << 20
_FINDINGS_OFFSET: int = CheckedLaunch.findings.offset


@dataclass(frozen=True)
class Dispatch:
    """The shape of a checked launch, the table of its buffers' addresses, and how many workers
    there are for it."""

    table: int
    threads: tuple[int, int, int]
    group_size: tuple[int, int, int]
    threadgroup_memory: dict[int, int]
    workers: int

    @property
    def groups(self) -> int:
        sizes = zip(self.threads, self.group_size, strict=True)
        return math.prod(-(-threads // size) for threads, size in sizes)


@dataclass(frozen=True)
class Plan:
    """How a launch is run: by how many workers, and whether only to see if there is anything to
    find. Then cells are as large as what the kernel touches at a time."""

    workers: int
    is_screening: bool


EXACT = Plan(1, is_screening=False)


class LaunchState:
    """One launch: a structure for each worker, and what they point to.

    `watched` names the arguments that a doubt is about, `fresh` those that hold nothing before the
    launch.
    """

    def __init__(
        self,
        checked: CheckedProgram,
        dispatch: Dispatch,
        views: Sequence[BufferView],
        watched: Collection[str | None],
        fresh: Collection[str],
        plan: Plan = EXACT,
    ) -> None:
        self._checked = checked
        self._dispatch = dispatch
        self._views = views
        self._watched = watched
        self._fresh = fresh
        self._plan = plan
        self._workers = (CheckedLaunch * plan.workers)()
        self._data: CheckedLaunch = self._workers[0]
        self._keep = self._tables()
        self._regions: dict[str, Region] = {}  # of the arguments
        self._aliased = aliased(checked, views)
        self._fill_regions()

    @property
    def checks(self) -> records.Checks:
        """What the checks read: of the first worker, and of all as far as buffers go."""
        return self._data.checks

    def launch(self) -> None:
        """Runs the kernel; the clock of the shadow goes on whatever comes of it."""
        try:
            self._checked.executable.launch(
                self._dispatch.table,
                self._dispatch.threads,
                self._dispatch.group_size,
                self._plan.workers,
                self._dispatch.threadgroup_memory or None,
                ctypes.addressof(self._workers),
            )
        finally:
            _arena.epoch = max(worker.checks.epoch for worker in self._workers) + 1

    def findings(self) -> Iterator[RawFinding]:
        for worker in self._workers:
            for number in range(worker.findings.count):
                yield worker.findings.entries[number]

    def touched(self) -> set[str]:
        """The arguments that the launch has touched, of those that were watched."""
        return {name for name in self._watched if name and self._regions[name].touched}

    def _tables(self) -> list[Any]:
        sites = self._checked.sites
        rows = (records.AccessSiteRow * max(len(sites), 1))()
        components = _components(self._checked)
        for row, site in zip(rows, sites, strict=False):
            row.align, row.use = site.align, site.use
            row.element = min(site.element, components.get(site.root, site.element))
            is_buffer = site.root.origin == "buffer"
            row.region = site.root.number if is_buffer else shadow.UNKNOWN_REGION
        words = [suspend.what for suspend in self._checked.suspends]
        suspends = (ctypes.c_uint * len(words))(*words)
        starts = (ctypes.c_uint * self._dispatch.groups)()
        self._data.sites = ctypes.addressof(rows)
        self._data.suspends = ctypes.addressof(suspends)
        self._data.group_starts = ctypes.addressof(starts)
        self._data.sink = _sink.address(self._checked.largest)
        self._data.matrix_site = self._checked.matrix_site
        self._data.has_fences = self._checked.has_fences
        self._data.is_screening = self._plan.is_screening
        return [rows, suspends, starts]

    def _fill_regions(self) -> None:
        buffers = self._buffer_regions()
        shared = self._threadgroup_regions()
        needs = [need for _, need in buffers] + [need for _, need in shared]
        # Other workers have threadgroup memory of their own, somewhere else.
        apart = len(shared) * _APART
        others = [_moved(need, worker * apart) for worker in self._others for _, need in shared]
        cells = iter(_arena.lay_out([*needs, *others]))
        for number, _ in (*buffers, *shared):
            _place(self._data.checks.regions[number], next(cells))
        self._data.checks.static_count = len(self._checked.variables)
        self._data.checks.epoch = _arena.epoch
        self._data.checks.step = 1 << (self._plan.workers - 1).bit_length()
        self._data.checks.first[Memory.DEVICE] = _arena.epoch
        for worker in self._others:
            state = self._workers[worker]
            ctypes.memmove(ctypes.addressof(state), ctypes.addressof(self._data), _FINDINGS_OFFSET)
            state.checks.epoch += worker
            for number, _ in shared:
                _place(state.checks.regions[number], next(cells))

    @property
    def _others(self) -> range:
        """The workers besides the first."""
        return range(1, self._plan.workers)

    def _buffer_regions(self) -> list[tuple[int, Need]]:
        """Fills the regions of buffers; those that need cells, by number."""
        checked = self._checked
        unknown_writes = checked.writes(UNKNOWN)
        needs: list[tuple[int, Need]] = []
        const = {a.index for a in checked.arguments if a.is_const}
        slots = iter(range(shadow.FIRST_STATIC + len(checked.variables), shadow.REGIONS))
        for view in self._views:
            number = view.index if view.index is not None else next(slots)
            region = self._regions[view.name] = self._data.checks.regions[number]
            region.low, region.extent, region.size = view.address, view.extent, view.size
            region.memory = Memory.DEVICE
            region.read_only = view.index in const
            region.fresh = view.name in self._fresh
            self._watch(region, view)
            if unknown_writes or not region.read_only or region.aliased:
                cell = self._cell(Root("buffer", number), view.address, view.extent)
                needs.append((number, Need(view.address, view.extent, cell)))
        self._data.checks.region_count = next(slots, shadow.REGIONS)
        return needs

    def _cell(self, root: Root, low: int, extent: int) -> int:
        """Bytes that share a record: the smallest element that the kernel touches there. For
        screening it may touch several at a time, if it always does."""
        checked = self._checked
        smallest = min(checked.smallest(UNKNOWN), checked.smallest(root))
        if not self._plan.is_screening:
            return smallest
        places = low | extent | checked.unit(UNKNOWN) | checked.unit(root)
        return max(smallest, places & -places)

    def _watch(self, region: Region, view: BufferView) -> None:
        """Says which accesses to a buffer must be looked at one by one: in most launches none."""
        region.aliased = view.index in self._aliased
        gaps = gaps_of(view) if view.index is not None else None
        if gaps is not None:
            region.strided = takes_strides(self._checked, self._views, view.tensor)
        if gaps is not None and not (region.strided and region.read_only):
            steps = (records.Step * len(gaps.steps))(*(records.Step(*step) for step in gaps.steps))
            self._keep.append(steps)
            region.steps, region.step_count = ctypes.addressof(steps), len(steps)
            region.run = gaps.run
        if region.aliased or region.step_count:
            region.watched = Watch.WATCHED
        elif view.name in self._watched:
            region.watched = Watch.WATCHED_ONCE

    def _threadgroup_regions(self) -> list[tuple[int, Need]]:
        """Static variables and dynamic parameters; their addresses are known when the run
        starts."""
        regions = self._data.checks.regions
        needs = []
        sizes = [
            (shadow.FIRST_DYNAMIC + index, 0, size, Root("dynamic", index))
            for index, size in self._dispatch.threadgroup_memory.items()
        ]
        for number, variable in enumerate(self._checked.variables):
            self._data.checks.static_offset[number] = variable.offset
            root = Root("static", variable.slot)
            sizes.append((shadow.FIRST_STATIC + number, variable.offset, variable.size, root))
        for place, (number, offset, size, root) in enumerate(sizes, 1):
            region = regions[number]
            region.extent = region.size = size
            region.memory, region.fresh = Memory.THREADGROUP, 1
            needs.append((number, Need(place * _APART, size, self._cell(root, offset, size))))
        return needs


def _place(region: Region, cells: Cells) -> None:
    region.shadow, region.shift = cells.address, cells.shift


def _moved(need: Need, by: int) -> Need:
    return Need(need.low + by, need.size, need.element)


def _components(checked: CheckedProgram) -> dict[Root, int]:
    """Bytes of a component, for buffers of vectors: a small vector may be copied as one integer."""
    buffers = [a for a in checked.arguments if a.role == "buffer" and a.is_pointer]
    kinds = ((argument.index or 0, numbers_of(argument.type)) for argument in buffers)
    return {Root("buffer", index): n.scalar.size for index, n in kinds if n and n.count > 1}
