"""Runs one launch under the checker: regions and shadow in, findings out."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anymetal.checker import records
from anymetal.checker.aliasing import aliased
from anymetal.checker.arguments import explained, suspicions
from anymetal.checker.consequences import settled
from anymetal.checker.context import ActiveCheck
from anymetal.checker.element_types import numbers_of
from anymetal.checker.finding import Finding, Launched, Place, Severity
from anymetal.checker.inline_source import InlineSource
from anymetal.checker.layouts import gaps_of, takes_strides
from anymetal.checker.program import CheckedProgram
from anymetal.checker.records import CheckedLaunch, Region, Watch
from anymetal.checker.shadow_memory import Arena, Need, Sink
from anymetal.checker.translate import Translator
from anymetal.checker.unwritten import unwritten
from anymetal.checker.views import BufferView
from anymetal.errors import KernelAssertion, KernelFault, KernelTimeout
from anymetal.machine import shadow
from anymetal.machine.shadow import Memory
from anymetal.passes.provenance import Root

# The clock and the shadow are shared: one checked launch at a time.
_lock = threading.Lock()
_arena = Arena()
_sink = Sink()
_TOO_DEEP = "the kernel used up its stack and was stopped: a function that calls itself too often?"
_WILD_CALL = "a call went to an address where there is no function, and the kernel was stopped"


@dataclass(frozen=True)
class Dispatch:
    """The shape of a checked launch and the table of its buffers' addresses."""

    table: int
    threads: tuple[int, int, int]
    group_size: tuple[int, int, int]
    threadgroup_memory: dict[int, int]


def run_checked(
    checked: CheckedProgram,
    dispatch: Dispatch,
    views: Sequence[BufferView],
    check: ActiveCheck,
    inline: InlineSource | None = None,
) -> None:
    """Runs the launch and adds what it finds to the check's report.

    `inline` is the source, where it has no file.
    """
    number = check.report.launch(checked.name)
    launched = Launched(number, check.caller, check.test, inline.call if inline else None)
    doubts = suspicions(checked, views)
    with _lock:
        launch = _Launch(checked, dispatch, views, check, {doubt.argument for doubt in doubts})
        findings = launch.run()
        touched = launch.touched()
    for finding in settled(explained(doubts, touched, findings)):
        located = replace(_relocated(finding, inline), launch=launched)
        check.report.add(located, lambda at: checked.comment(inline.back(at) if inline else at))


def _relocated(finding: Finding, inline: InlineSource | None) -> Finding:
    """The finding with places of the file that an inline source stands in."""
    if inline is None:
        return finding

    def moved(place: Place) -> Place:
        excerpt = inline.excerpt(place.position, place.excerpt)
        return replace(place, position=inline.position(place.position), excerpt=excerpt)

    other = moved(finding.other) if finding.other else None
    scene = finding.scene and finding.scene.moved(inline.position)
    return replace(finding, place=moved(finding.place), other=other, scene=scene)


class _Launch:
    """One checked launch: the structure the runtime works on, and what it points to."""

    def __init__(
        self,
        checked: CheckedProgram,
        dispatch: Dispatch,
        views: Sequence[BufferView],
        check: ActiveCheck,
        watched: Collection[str | None],
    ) -> None:
        self._checked = checked
        self._dispatch = dispatch
        self._views = views
        self._outputs = check.outputs
        self._data = CheckedLaunch()
        self._keep = self._tables()
        self._watched = watched
        self._regions: dict[str, Region] = {}  # of the arguments
        self._aliased = aliased(checked, views)
        self._fill_regions()

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
        sizes = zip(self._dispatch.threads, self._dispatch.group_size, strict=True)
        groups = math.prod(-(-threads // size) for threads, size in sizes)
        starts = (ctypes.c_uint * groups)()
        self._data.sites = ctypes.addressof(rows)
        self._data.suspends = ctypes.addressof(suspends)
        self._data.group_starts = ctypes.addressof(starts)
        self._data.sink = _sink.address(self._checked.largest)
        self._data.matrix_site = self._checked.matrix_site
        self._data.has_fences = self._checked.has_fences
        return [rows, suspends, starts]

    def _fill_regions(self) -> None:
        regions = self._data.checks.regions
        checked = self._checked
        any_unknown = checked.smallest(Root("unknown"))
        unknown_writes = checked.writes(Root("unknown"))
        needs: list[tuple[Region, Need]] = []
        const = {a.index for a in checked.arguments if a.is_const}
        slots = iter(range(shadow.FIRST_STATIC + len(checked.variables), shadow.REGIONS))
        for view in self._views:
            number = view.index if view.index is not None else next(slots)
            region = self._regions[view.name] = regions[number]
            region.low, region.extent, region.size = view.address, view.extent, view.size
            region.memory = Memory.DEVICE
            region.read_only = view.index in const
            region.fresh = view.tensor is not None and self._is_output(view.tensor)
            root = Root("buffer", number)
            self._watch(region, view)
            if unknown_writes or not region.read_only or region.aliased:
                element = min(any_unknown, checked.smallest(root))
                needs.append((region, Need(view.address, view.extent, element)))
        needs += self._threadgroup_regions(any_unknown)
        for (region, _), cells in zip(needs, _arena.lay_out([n for _, n in needs]), strict=True):
            region.shadow, region.shift = cells.address, cells.shift
        self._data.checks.region_count = next(slots, shadow.REGIONS)
        self._data.checks.static_count = len(checked.variables)
        self._data.checks.epoch = _arena.epoch
        self._data.checks.first[Memory.DEVICE] = _arena.epoch

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

    def touched(self) -> set[str]:
        """The arguments that the launch has touched, of those that were watched."""
        return {name for name in self._watched if name and self._regions[name].touched}

    def _threadgroup_regions(self, any_unknown: int) -> list[tuple[Region, Need]]:
        """Static variables and dynamic parameters; their addresses are known when the run
        starts."""
        regions = self._data.checks.regions
        needs = []
        place = 1  # any distinct made-up addresses: cells of different variables never overlap
        sizes = [
            (shadow.FIRST_DYNAMIC + index, size, Root("dynamic", index))
            for index, size in self._dispatch.threadgroup_memory.items()
        ]
        for number, variable in enumerate(self._checked.variables):
            self._data.checks.static_offset[number] = variable.offset
            root = Root("static", variable.slot)
            sizes.append((shadow.FIRST_STATIC + number, variable.size, root))
        for number, size, root in sizes:
            region = regions[number]
            region.extent = region.size = size
            region.memory, region.fresh = Memory.THREADGROUP, 1
            element = min(any_unknown, self._checked.smallest(root))
            needs.append((region, Need(place << 20, size, element)))
            place += 1
        return needs

    def _is_output(self, tensor: Any) -> bool:
        outputs = self._outputs or ()
        return any(tensor is output or _same_memory(tensor, output) for output in outputs)

    def run(self) -> list[Finding]:
        translator = Translator(self._checked, self._dispatch.threads, self._dispatch.group_size)
        findings: list[Finding] = []
        try:
            self._checked.executable.launch(
                self._dispatch.table,
                self._dispatch.threads,
                self._dispatch.group_size,
                1,
                self._dispatch.threadgroup_memory or None,
                ctypes.addressof(self._data),
            )
        except KernelTimeout as error:
            findings.append(translator.stopped("timeout", str(error)))
        except KernelAssertion as error:
            findings += map(translator.failed, error.failures)
        except KernelFault as error:
            message = _TOO_DEEP if error.overflow else _WILD_CALL
            kind = "limits" if error.overflow else "out_of_bounds"
            findings.append(translator.stopped(kind, message))
        finally:
            _arena.epoch = self._data.checks.epoch + 1
        raw = self._data.findings
        found = [translator.finding(raw.entries[i], self._views) for i in range(raw.count)]
        return [*found, *findings, *(self._unwritten(translator) if not findings else ())]

    def _unwritten(self, translator: Translator) -> Iterator[Finding]:
        """Buffers that the launch wrote in part, or that were to be written and were not. One that
        is read as well, or updated by atomics, keeps what is not written on purpose."""
        if self._outputs == ():
            return
        for view in self._views:
            region = self._data.checks.regions[view.index if view.index is not None else 0]
            if view.index is None or view.tensor is None or not region.shadow or region.read_only:
                continue
            expected = self._is_output(view.tensor)
            if not expected and self._checked.is_input(Root("buffer", view.index)):
                continue
            left = unwritten(self._checked, self._data.checks, view)
            if left.missing and (left.partial or expected):
                severity: Severity = "error" if expected else "warning"
                yield translator.unwritten(view, left, severity)


def _components(checked: CheckedProgram) -> dict[Root, int]:
    """Bytes of a component, for buffers of vectors: a small vector may be copied as one integer."""
    buffers = [a for a in checked.arguments if a.role == "buffer" and a.is_pointer]
    kinds = ((argument.index or 0, numbers_of(argument.type)) for argument in buffers)
    return {Root("buffer", index): n.scalar.size for index, n in kinds if n and n.count > 1}


def _same_memory(tensor: Any, output: Any) -> bool:
    return bool(tensor.data_ptr() == output.data_ptr() and tensor.shape == output.shape)
