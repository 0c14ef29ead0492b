"""The instrumentation that profiles: what the simdgroups of a run did, line by line.

It runs on the vector engine, where a simdgroup executes each instruction once for its active lanes:
the counts are exact, and lanes that are idle are seen to be.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from anymetal.engines.contract import Engine
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.simdgroups.engine import SimdgroupEngine, SimdgroupExecutable
from anymetal.engines.cpu.target import HOST
from anymetal.ir import Module
from anymetal.msl import clang
from anymetal.nouns import Program
from anymetal.passes.check.debug_info import Spot
from anymetal.passes.count.observe import (
    BLOCK_NUMBERS,
    BLOCKS,
    BUFFERS,
    SITE_NUMBERS,
    SITES,
    STARTS,
    Observed,
    observe,
)
from anymetal.passes.simdgroup.observers import OBSERVED, STRIDE, TOUCHED
from anymetal.store.cache import default_store
from anymetal.store.fingerprint import fingerprint

Place = tuple[str, int]  # a file and a line of the author's
_OF_SITE = 7  # fields of a site that are not in its record
_SUPPORT = Path(__file__).parent / "cpu" / "observed.cpp"


@dataclass(frozen=True)
class SiteRun:
    """One access of the code, and what it did in a run."""

    place: Place | None
    memory: str
    buffer: int
    size: int
    kind: str
    executions: int  # by simdgroups
    lanes: int
    moved: int  # lines of 128 bytes, or cycles of threadgroup memory
    least: int  # for as many bytes or words
    worst: int  # of one access
    regular: int  # accesses whose lanes were a fixed distance apart
    stride: int  # that distance in bytes, of the last such access
    contended: int  # of atomics: the most lanes that wanted one address, summed over executions


@dataclass(frozen=True)
class BlockRun:
    """One block of the code: executions by simdgroups, lanes, its operations by place."""

    executions: int
    lanes: int
    costs: tuple[tuple[Place | None, str, int], ...]
    following: tuple[int, ...]
    branch: Place | None


@dataclass(frozen=True)
class Observation:
    """All that was counted in the launches since the last."""

    blocks: tuple[BlockRun, ...]
    sites: tuple[SiteRun, ...]
    touched_lines: int  # of device memory, each counted once a launch

    def __add__(self, other: Observation) -> Observation:
        """Of two launches of one kernel."""
        blocks = (
            replace(a, executions=a.executions + b.executions, lanes=a.lanes + b.lanes)
            for a, b in zip(self.blocks, other.blocks, strict=True)
        )
        sites = tuple(map(_sum_of_sites, self.sites, other.sites))
        return Observation(tuple(blocks), sites, self.touched_lines + other.touched_lines)


def _sum_of_sites(first: SiteRun, second: SiteRun) -> SiteRun:
    return replace(
        first,
        **{
            name: getattr(first, name) + getattr(second, name)
            for name in ("executions", "lanes", "moved", "least", "regular", "contended")
        },
        worst=max(first.worst, second.worst),
        stride=second.stride if second.regular else first.stride,
    )


class ProfiledExecutable:
    """A kernel that counts; its counters are variables of its code."""

    def __init__(self, executable: SimdgroupExecutable) -> None:
        self.executable = executable
        self.payload, self.metadata = executable.payload, executable.metadata

    def take(self) -> Observation:
        """What happened since the last call."""
        note = self.metadata["observed"]
        blocks = self._sums(BLOCKS, BLOCK_NUMBERS * len(note["blocks"]))
        sites = self._sums(SITES, SITE_NUMBERS * len(note["sites"]))
        places: list[Place | None] = [None, *((file, line) for file, line in note["places"])]
        runs = tuple(
            BlockRun(
                blocks[number * BLOCK_NUMBERS],
                blocks[number * BLOCK_NUMBERS + 1],
                costs=tuple((places[p], name, amount) for p, name, amount in row["costs"]),
                following=tuple(row["following"]),
                branch=places[row["branch"]],
            )
            for number, row in enumerate(note["blocks"])
        )
        found = []
        for number, row in enumerate(note["sites"]):
            start = number * SITE_NUMBERS
            counted = sites[start : start + len(fields(SiteRun)) - _OF_SITE]
            block = runs[row["block"]]
            found.append(
                SiteRun(
                    *(places[row["place"]], row["memory"], row["buffer"], row["size"], row["kind"]),
                    *(block.executions, block.lanes, *counted),
                )
            )
        return Observation(runs, tuple(found), _take_touched())

    def set_starts(self, starts: Mapping[int, int]) -> None:
        """Say where in a line each buffer begins, before a launch whose code is there."""
        for code in self.executable.loaded():
            table = (ctypes.c_int64 * BUFFERS).from_address(code.symbol(STARTS))
            ctypes.memset(table, 0, ctypes.sizeof(table))
            for index, start in starts.items():
                table[index + 1] = start

    def _sums(self, symbol: str, count: int) -> list[int]:
        """The counters over the code of all shapes, which begin again at zero."""
        total = [0] * count
        for code in self.executable.loaded():
            counters = (ctypes.c_int64 * count).from_address(code.symbol(symbol))
            for number, value in enumerate(counters):
                is_stride = symbol == SITES and number % SITE_NUMBERS == STRIDE
                total[number] = (value or total[number]) if is_stride else total[number] + value
            ctypes.memset(counters, 0, ctypes.sizeof(counters))
        return total


class Profiled:
    """Counters in every block and at every access, on one processor."""

    name, key, engine = "profiled", "", SimdgroupEngine.name
    optimise, quotes = True, True

    def compile(self, program: Program, engine: Engine, *, patient: bool) -> ProfiledExecutable:
        assert isinstance(engine, SimdgroupEngine)
        _provide()
        constants = {a.index for a in program.arguments if a.space == "constant"}
        kept: list[Observed] = []

        def watch(module: Module) -> None:
            kept.append(observe(module, frozenset(i for i in constants if i is not None)))

        executable = engine.compile(program, patient=True, observe=watch)
        executable.metadata["observed"] = _note(kept[0], program)
        return ProfiledExecutable(executable)

    def load(self, payload: bytes, metadata: dict[str, Any], engine: Engine) -> ProfiledExecutable:
        assert isinstance(engine, SimdgroupEngine)
        _provide()
        return ProfiledExecutable(engine.load(payload, metadata))


PROFILED = Profiled()


def _note(observed: Observed, program: Program) -> Mapping[str, Any]:
    """What the cache keeps: places are numbers into a table, 0 is none of the author's."""
    places: dict[Place, int] = {}

    def number(spots: Sequence[Spot]) -> int:
        place = _author_place(spots, program)
        return 0 if place is None else places.setdefault(place, len(places) + 1)

    blocks = [
        {
            "costs": [[number(spots), name, amount] for spots, name, amount in block.costs],
            "following": list(block.following),
            "branch": number(block.branch),
        }
        for block in observed.blocks
    ]
    sites = [
        {
            "block": site.block,
            "place": number(site.spots),
            "memory": site.memory,
            "buffer": site.buffer,
            "size": site.size,
            "kind": site.kind,
        }
        for site in observed.sites
    ]
    return {"blocks": blocks, "sites": sites, "places": [list(place) for place in places]}


def _author_place(spots: Sequence[Spot], program: Program) -> Place | None:
    """The innermost place that is the author's: our own headers are not."""
    for spot in spots:
        if spot.file == clang.INPUT_NAME:
            line = spot.line - program.first_line + 1
            position = program.source_map.position(line, spot.column)
            if position is not None:
                return position.file, position.line
    return None


@functools.cache
def _provide() -> jit.LoadedCode:
    """The function that looks at addresses, built once a machine."""
    store, key = default_store(), fingerprint("tools", "processor", _SUPPORT)
    entry = store.get("observed", key)
    if entry is not None:
        payload = entry.payload
    else:
        payload = jit.object_code(clang.compile_support(_SUPPORT, HOST), level=2)
        store.put("observed", key, {}, payload)
    loaded = jit.LoadedCode(payload)
    for symbol in (OBSERVED, TOUCHED):
        jit.provide_symbol(symbol, loaded.address(symbol))
    return loaded


def _take_touched() -> int:
    take = ctypes.CFUNCTYPE(ctypes.c_ulong)(_provide().address("am_take_touched"))
    return int(take())
