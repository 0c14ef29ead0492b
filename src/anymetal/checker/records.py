"""What Python fills before a checked launch and reads after it -> checker/shadow/records.h."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from anymetal.checker.kinds import RECORDED
from anymetal.machine.shadow import (
    BUFFERS,
    DYNAMIC,
    FIRST_DYNAMIC,
    FIRST_STATIC,
    LARGEST_CELL,
    MAX_STATIC,
    REGIONS,
    UNKNOWN_REGION,
    Access,
    Beyond,
    Memory,
    Source,
    Use,
)
from anymetal.machine.table import Enum, Enumeration, Header, Structure, member, table
from anymetal.nouns import MAX_GROUP_SIZE, SIMDGROUP

NO_SITE, NO_THREAD = 0xFFFF, 0xFFFFFFFF
MAX_FINDINGS = 1024
NULL_BYTES = 1 << 16  # addresses below are a null pointer with an index
OF_QUADS = 1  # in the place of memory flags: the collective is one of quads
MAX_SIMDGROUPS = MAX_GROUP_SIZE // SIMDGROUP


class RawSeverity(Enumeration):
    """Whether a finding is certain to be a defect."""

    WARNING = 0
    ERROR = 1


class Watch(Enumeration):
    """Why accesses to a region are looked at one by one."""

    UNWATCHED = 0
    WATCHED_ONCE = 1, "until it is touched"
    WATCHED = 2, "there are gaps in it, or other arguments in its memory"


@table("am_cell")
class Cell(Structure):
    """Last write and last reads of a few bytes; state.h says what the bits of a record are."""

    write: int = member("unsigned long")
    read: int = member("unsigned long")


@table("am_step")
class Step(Structure):
    """One dimension of a tensor that has gaps between its elements."""

    bytes: int = member("unsigned long", note="from one to the next")
    length: int = member("unsigned long")


@table("am_region")
class Region(Structure):
    """Bytes that belong to one buffer or one threadgroup variable."""

    low: int = member("char*")
    extent: int = member("unsigned long", note="bytes of the tensor itself")
    size: int = member("unsigned long", note="bytes up to the end of its storage, or the same")
    shadow: int = member("am_cell*", note="null: only bounds are checked")
    shift: int = member("unsigned", note="bytes of a cell, as a power of two")
    memory: int = member("unsigned", note="am_memory")
    read_only: int = member("unsigned")
    fresh: int = member("unsigned", note="1: nothing is in it before the launch writes")
    watched: int = member("unsigned", note="am_watch: whether accesses take the slow path")
    touched: int = member("unsigned", note="1: the launch has touched what is watched")
    aliased: int = member("unsigned", note="1: other arguments are in its memory")
    strided: int = member("unsigned", note="1: the kernel takes strides, and may read in gaps")
    step_count: int = member("unsigned", note="0: there are no gaps between the elements")
    steps: int = member("const am_step*", note="of the dimensions, the largest first")
    run: int = member("unsigned long", note="bytes without a gap at each of these places")
    limit: int = member("unsigned long", note="`extent` for loads of constants, 0 if watched")
    cells: Any = member(
        "unsigned long",
        LARGEST_CELL.bit_length(),
        note="whole cells of `extent` at `shift`, if cells and addresses are in step; 0 elsewhere",
    )


@table("am_checks")
class Checks(Structure):
    """What the checks in a kernel read: epochs and regions."""

    epoch: int = member("unsigned")
    step: int = member("unsigned", note="of the clock: a power of two, no less than the workers")
    first: Any = member("unsigned", 2, note="epoch from which records of a memory count")
    group_first: int = member("unsigned", note="epoch at the start of the threadgroup")
    ordered: Any = member("unsigned", 2, note="of the last barrier that orders a memory")
    executed: int = member("unsigned", note="of the last barrier, whatever it orders")
    region_count: int = member("unsigned")
    static_count: int = member("unsigned", note="threadgroup variables: from kFirstStatic on")
    static_offset: Any = member("unsigned", MAX_STATIC, note="of the threadgroup variables")
    regions: Any = member(Region, REGIONS + 1)


@table("am_finding")
class RawFinding(Structure):
    """One finding as the runtime records it."""

    kind: int = member("unsigned", note="am_kind")
    severity: int = member("unsigned", note="am_severity")
    site: int = member("unsigned", note="of an access, or of a suspend for the kinds of divergence")
    other_site: int = member("unsigned", note="kNoSite16: there is none")
    region: int = member("unsigned")
    access: int = member("unsigned", note="am_access of the one that completes it")
    other_access: int = member("unsigned", note="and of the other")
    thread: int = member("unsigned", note="index in its threadgroup")
    other_thread: int = member("unsigned", note="kNoThread: one of several")
    extra: int = member("unsigned", note="active lanes of a collective, or threads that had ended")
    group: int = member("unsigned long")
    other_group: int = member("unsigned long")
    offset: int = member("long", note="bytes from the start of the region or array")
    size: int = member("unsigned long")
    count: int = member("unsigned long")


@table("am_findings")
class Findings(Structure):
    """The findings of a launch, equal ones folded."""

    count: int = member("unsigned long")
    dropped: int = member("unsigned long")
    entries: Any = member(RawFinding, MAX_FINDINGS)


@table("am_access_site")
class AccessSiteRow(Structure):
    """What Python tells of an access site."""

    element: int = member("unsigned", note="alignment an access must have: less is an error")
    align: int = member("unsigned", note="less than this is a warning")
    use: int = member("unsigned", note="am_use")
    region: int = member("unsigned", note="the buffer it goes through, or kUnknownRegion")


@table("am_range")
class Range(Structure):
    """Addresses from `low` up to `high`."""

    low: int = member("char*")
    high: int = member("char*")


@table("am_table")
class ConstantTable(Structure):
    """A constant of the program, as instrumented code names it."""

    low: int = member("char*")
    size: int = member("unsigned long")


@table("am_checked_launch")
class CheckedLaunch(Structure):
    """Everything that one worker of a checked launch knows. Python allocates them, one behind the
    other, and reads the findings."""

    checks: Checks = member(Checks)
    simd_ordered: Any = member("unsigned", 2, MAX_SIMDGROUPS)
    simd_executed: Any = member("unsigned", MAX_SIMDGROUPS)
    suspends: int = member("const unsigned*", note="by site number: the word given to am_suspend")
    sites: int = member("const am_access_site*")
    group_starts: int = member("unsigned*", note="epoch at the start of each threadgroup")
    group: int = member("unsigned long", note="number of the one that runs")
    sink: int = member("char*", note="where wrong accesses go: as large as the largest")
    own: Any = member(Range, 2, note="frames and stack of the threads: addresses that are fine")
    has_fences: int = member("unsigned", note="1: what atomics publish is kept (publish.h)")
    matrix_site: int = member("unsigned", note="site of the first load or store of a matrix")
    group_threads: int = member("unsigned", note="of the threadgroup that runs")
    has_matrices: int = member("unsigned", note="1: the threadgroup has loaded or stored one")
    matrices: Any = member("unsigned", MAX_GROUP_SIZE, note="a thread's loads and stores, hashed")
    last_matrix: Any = member("unsigned", MAX_GROUP_SIZE, note="the last of them")
    returned: Any = member("unsigned", MAX_GROUP_SIZE, note="epoch of the threadgroup: by `return`")
    diverged: int = member("unsigned", note="epoch of a threadgroup at different barriers")
    has_shuffles: int = member("unsigned", note="1: some thread is about to read another lane")
    shuffles: Any = member("unsigned", MAX_GROUP_SIZE, note="the lane that is read from, + 1")
    first_number: int = member("unsigned", note="site + 1 where the first NaN or infinity was born")
    doubt: Any = member(
        "unsigned", MAX_GROUP_SIZE, note="site + 1 of a read of nothing whose value is picked later"
    )
    pending: RawFinding = member(
        RawFinding, note="a write over another thread's, judged when the new value is there"
    )
    pending_address: int = member("char*")
    pending_size: int = member("unsigned")
    pending_value: Any = member("char", 64)
    is_screening: int = member("unsigned", note="1: over at the end of a threadgroup with findings")
    findings: Findings = member(Findings)


CELL_BYTES = ctypes.sizeof(Cell)

HEADER = Header(
    Path(__file__).parent / "shadow" / "records.h",
    "checker/records.py",
    constants={
        "kLargestCell": LARGEST_CELL,
        "kBuffers": BUFFERS,
        "kDynamic": DYNAMIC,
        "kMaxStatic": MAX_STATIC,
        "kFirstDynamic": FIRST_DYNAMIC,
        "kFirstStatic": FIRST_STATIC,
        "kRegions": REGIONS,
        "kUnknownRegion": UNKNOWN_REGION,
        "kMaxSimdgroups": MAX_SIMDGROUPS,
        "kMaxFindings": MAX_FINDINGS,
        "kNoSite16": NO_SITE,
        "kNoThread": NO_THREAD,
        "kNullBytes": NULL_BYTES,
        "kOfQuads": OF_QUADS,
    },
    enums=(
        Enum.of(Memory, "am_memory"),
        Enum.of(Access, "am_access"),
        Enum.of(Use, "am_use"),
        Enum.of(Watch, "am_watch"),
        Enum.of(Source, "am_source"),
        Enum.of(RawSeverity, "am_severity"),
        Enum.of(Beyond, "am_beyond"),
        Enum({row.enumerator: value for value, row in enumerate(RECORDED)}, "am_kind", prefix=""),
    ),
    structures=(
        Cell, Step, Region, Checks, RawFinding, Findings, AccessSiteRow, Range, ConstantTable,
        CheckedLaunch,
    ),
)  # fmt: skip
