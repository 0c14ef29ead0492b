"""Counters of blocks and accesses go in; figures of each line of the author's come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anymetal.engines.profiled import BlockRun, Observation, Place, SiteRun
from anymetal.launch.bind import THREADGROUP_MEMORY_LIMIT
from anymetal.launch.kernel import Kernel
from anymetal.launch.profiled_call import LaunchShape

LINE_BYTES = 128
WIDTH = 32
# `functions` are exp, sin and their like, in as many operations as this library computes them in.
ARITHMETIC = ("fp32", "fp16", "bf16", "int", "convert", "matrix", "functions")
MEMORIES = ("device", "constant", "threadgroup", "private")


@dataclass
class LineProfile:
    """What one line did; numbers are of lanes unless they say otherwise."""

    executions: int = 0  # by simdgroups, of the block that ran most often
    lanes: int = 0  # likewise
    busy: int = 0  # lanes, each as often as it had something to do
    slots: int = 0  # the same if none had been idle
    reads: Counter[str] = field(default_factory=Counter)  # by memory
    writes: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)  # asked for, by memory
    moved_bytes: int = 0  # of device memory, in lines of 128 bytes
    least_bytes: int = 0  # if lanes' bytes lay side by side
    bank_cycles: int = 0
    least_cycles: int = 0
    worst_bank: int = 0  # cycles of one access
    atomics: Counter[str] = field(default_factory=Counter)
    atomic_executions: int = 0
    contended: int = 0  # lanes that wait for one address, summed over executions
    operations: Counter[str] = field(default_factory=Counter)  # by type
    barriers: int = 0
    simdgroup_barriers: int = 0
    collectives: int = 0
    sites: list[SiteRun] = field(default_factory=list)  # of device memory
    buffers: Counter[int] = field(default_factory=Counter)  # bytes read, by buffer

    @property
    def idle(self) -> float:
        """The share of lanes that did nothing while others ran the line."""
        return 1 - self.busy / self.slots if self.slots else 0.0

    @property
    def arithmetic(self) -> int:
        return sum(self.operations.values())

    @property
    def coalescing(self) -> float | None:
        """Bytes moved over the least: 1 is best."""
        return self.moved_bytes / self.least_bytes if self.least_bytes else None

    @property
    def bank_conflict(self) -> float | None:
        """Cycles of threadgroup memory over the least: 1 is best."""
        return self.bank_cycles / self.least_cycles if self.least_cycles else None


@dataclass(frozen=True)
class Branch:
    """A branch that always went one way."""

    line: int
    executed: int  # lanes that came to it


@dataclass(frozen=True)
class KernelProfile:
    """One kernel in all its launches."""

    name: str
    file: str
    source: tuple[str, ...]
    lines: Mapping[int, LineProfile]
    total: LineProfile
    launches: int
    shapes: tuple[LaunchShape, ...]
    touched_bytes: int  # lines of device memory that were used at all, each once a launch
    threadgroup_bytes: int
    buffer_names: Mapping[int, str]
    buffer_bytes: Mapping[int, int]
    never: tuple[int, ...]  # lines with code that no thread executed
    one_way: tuple[Branch, ...]
    unprofiled: str = ""

    @property
    def threads(self) -> int:
        return sum(_product(shape.grid) for shape in self.shapes)

    @property
    def groups_at_once(self) -> int | None:
        """Threadgroups whose memory fits a core at once, if it has 32 KiB for them."""
        if not self.threadgroup_bytes:
            return None
        return THREADGROUP_MEMORY_LIMIT // self.threadgroup_bytes

    @property
    def threads_at_once(self) -> int | None:
        """Threads that the threadgroup memory of a core leaves room for."""
        at_once = self.groups_at_once
        if at_once is None or not self.shapes:
            return None
        return at_once * _product(self.shapes[0].group)


def kernel_profile(
    kernel: Kernel,
    observation: Observation | None,
    shapes: tuple[LaunchShape, ...],
    launches: int,
    buffer_bytes: Mapping[int, int],
    unprofiled: str,
) -> KernelProfile:
    """The figures of a kernel."""
    blocks = observation.blocks if observation else ()
    sites = observation.sites if observation else ()
    file = _file(blocks, sites, kernel)
    lines: dict[int, LineProfile] = {}
    for number in {p[1] for p in _places(blocks, sites) if p[0] == file}:
        lines[number] = _line(blocks, sites, (file, number))
    dynamic = max((sum(shape.memory.values()) for shape in shapes), default=0)
    return KernelProfile(
        name=kernel.name,
        file=file,
        source=tuple(kernel.source_text.splitlines()),
        lines=dict(sorted(lines.items())),
        total=_figures(blocks, sites),
        launches=launches,
        shapes=shapes,
        touched_bytes=(observation.touched_lines if observation else 0) * LINE_BYTES,
        threadgroup_bytes=kernel.static_thread_group_memory_length + dynamic,
        buffer_names={
            a.index: a.name
            for a in kernel.arguments
            if a.role == "buffer" and a.index is not None and a.name is not None
        },
        buffer_bytes=dict(buffer_bytes),
        never=tuple(number for number, line in sorted(lines.items()) if not line.executions),
        one_way=tuple(_one_way(blocks, file)),
        unprofiled=unprofiled,
    )


def _line(blocks: Sequence[BlockRun], sites: Sequence[SiteRun], place: Place) -> LineProfile:
    """The figures of one line: of the blocks that have code of it."""
    own_blocks = [
        BlockRun(b.executions, b.lanes, kept, b.following, b.branch)
        for b in blocks
        if (kept := tuple(cost for cost in b.costs if cost[0] == place)) or b.branch == place
    ]
    return _figures(own_blocks, [site for site in sites if site.place == place])


def _figures(blocks: Iterable[BlockRun], sites: Iterable[SiteRun]) -> LineProfile:
    line = LineProfile()
    runs: list[tuple[int, int, int]] = []  # executions, lanes and how much is done there
    for block in blocks:
        weight = sum(amount for *_, amount in block.costs) or 1
        runs.append((block.executions, block.lanes, weight))
        for _, name, amount in block.costs:
            if name in ARITHMETIC:
                line.operations[name] += amount * block.lanes
            else:
                setattr(line, name, getattr(line, name) + amount * block.lanes)
    for site in sites:
        runs.append((site.executions, site.lanes, 1))
        _add_site(line, site)
    line.executions = max((executions for executions, *_ in runs), default=0)
    line.lanes = max((lanes for _, lanes, _ in runs), default=0)
    line.busy = sum(lanes * weight for _, lanes, weight in runs)
    line.slots = sum(executions * WIDTH * weight for executions, _, weight in runs)
    return line


def _add_site(line: LineProfile, site: SiteRun) -> None:
    line.bytes[site.memory] += site.lanes * site.size
    if site.kind == "atomic":
        line.atomics[site.memory] += site.lanes
        line.atomic_executions += site.executions
        line.contended += site.contended
    else:
        counted = line.reads if site.kind == "read" else line.writes
        counted[site.memory] += site.lanes
    if site.memory == "device":
        line.sites.append(site)
        line.moved_bytes += site.moved * LINE_BYTES
        line.least_bytes += site.least * LINE_BYTES
        if site.kind == "read":
            line.buffers[site.buffer] += site.lanes * site.size
    elif site.memory == "threadgroup":
        line.bank_cycles += site.moved
        line.least_cycles += site.least
        line.worst_bank = max(line.worst_bank, site.worst)


def _one_way(blocks: Sequence[BlockRun], file: str) -> Iterable[Branch]:
    """Branches of which one side was never taken, found from what flows through the blocks."""
    flows = _edge_lanes(blocks)
    for number, block in enumerate(blocks):
        if block.branch is None or block.branch[0] != file or not block.lanes:
            continue
        known = [flows.get((number, side)) for side in range(len(block.following))]
        if 0 in known:
            yield Branch(block.branch[1], block.lanes)


def _edge_lanes(blocks: Sequence[BlockRun]) -> dict[tuple[int, int], int]:
    """Lanes on each edge, as far as they follow: what enters a block leaves it."""
    arriving: dict[int, list[tuple[int, int]]] = {}
    for number, block in enumerate(blocks):
        for side, target in enumerate(block.following):
            arriving.setdefault(target, []).append((number, side))
    known: dict[tuple[int, int], int] = {}
    changed = True
    while changed:
        changed = False
        for number, block in enumerate(blocks):
            out = [(number, side) for side in range(len(block.following))]
            groups = [out, arriving.get(number, []) if number else []]
            for edges in groups:
                open_edges = [edge for edge in edges if edge not in known]
                if len(open_edges) == 1:
                    rest = block.lanes - sum(known[e] for e in edges if e in known)
                    known[open_edges[0]] = rest
                    changed = True
    return known


def _places(blocks: Sequence[BlockRun], sites: Sequence[SiteRun]) -> set[Place]:
    found = {cost[0] for block in blocks for cost in block.costs}
    found |= {block.branch for block in blocks} | {site.place for site in sites}
    return {place for place in found if place is not None}


def _file(blocks: Sequence[BlockRun], sites: Sequence[SiteRun], kernel: Kernel) -> str:
    """The file that the kernel's text is: headers have lines of their own."""
    names = Counter(place[0] for place in _places(blocks, sites))
    return kernel.source_name if kernel.source_name in names or not names else next(iter(names))


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
