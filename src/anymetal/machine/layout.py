"""The machine under a kernel (one thread, its simdgroup, its threadgroup) -> anymetal/layout.h.

The passes read these members from IR, the engines' runtimes fill them, the metal_* headers use
them.
"""

from __future__ import annotations

from pathlib import Path

from anymetal.machine.table import Enum, Enumeration, Header, Structure, member, table
from anymetal.nouns import MAX_GROUP_SIZE, SIMDGROUP

SLOT_BYTES = 64  # the widest value one lane brings to a collective
THREADGROUP_ARGUMENTS = 31
WAIT_BITS = 4  # the low bits of am_thread::site and of the word given to am_suspend: an am_wait
WAIT_MASK = (1 << WAIT_BITS) - 1
SCOPE_SHIFT = 12  # of the scope of a barrier, behind its memory flags

INCLUDE_DIR = Path(__file__).parent / "include"


class Wait(Enumeration):
    """What a thread waits for when it suspends. Kept in the low bits of `am_thread::site`."""

    FINISHED = 0
    THREADGROUP_BARRIER = 1, "all live threads of the threadgroup"
    SIMDGROUP_BARRIER = 2, "the live lanes standing at this site"
    COLLECTIVE = 3, "the live lanes standing at this site"
    LOOP_END = 4, "likewise; inserted where a kernel becomes a coroutine"


def waits_for(word: int) -> Wait:
    """What a thread waits for, from its `site` or from the word given to am_suspend."""
    return Wait(word & WAIT_MASK)


class MemoryFlags(Enumeration):
    """The memory that a barrier orders: behind the am_wait in the word given to am_suspend."""

    DEVICE = 1
    THREADGROUP = 2


class Described(Enumeration):
    """Bits of am_description::flags: what kind of parameter it is."""

    IS_POINTER = 1
    IS_REFERENCE = 2
    IS_CONST = 4


class LogKind(Enumeration):
    """What the bits of an argument of a log message mean."""

    SIGNED = 0
    UNSIGNED = 1
    FLOAT = 2, "binary floating point of `size` bytes: half or float"
    BFLOAT = 3, "upper half of a float"
    POINTER = 4


@table("am_group")
class Group(Structure):
    """One threadgroup."""

    position = member("unsigned", 3, note="threadgroup_position_in_grid")
    size = member("unsigned", 3, note="threads_per_threadgroup: smaller at the edges of the grid")
    nominal_size = member("unsigned", 3, note="dispatch_threads_per_threadgroup")
    groups = member("unsigned", 3, note="threadgroups_per_grid")
    grid = member("unsigned", 3, note="threads_per_grid")
    threads = member("unsigned", note="size[0] * size[1] * size[2]")
    simdgroups = member("unsigned", note="threads / 32, rounded up")
    nominal_simdgroups = member("unsigned", note="dispatch_simdgroups_per_threadgroup")
    threadgroup_memory = member("char*", note="the arrays declared in the kernel's body")
    dynamic_memory = member("char*", THREADGROUP_ARGUMENTS, note="[[threadgroup(n)]] parameters")
    log = member("void*", note="the runtime's: where os_log messages go")
    listener_data = member("void*", note="the runtime's: what instrumented code reports to")


@table("am_simdgroup")
class Simdgroup(Structure):
    """One simdgroup of a threadgroup."""

    active = member("unsigned", note="bit per lane: those in the collective just completed")
    leader = member("unsigned", note="lowest active lane: resumed first, computes for all")
    index = member("unsigned", note="simdgroup_index_in_threadgroup")
    threads = member("unsigned", note="live at the start: 32, or fewer in the last simdgroup")
    inputs = member(
        "char", 2 * SIMDGROUP * SLOT_BYTES, align=64, note="one value a lane: see am_lanes_in"
    )
    outputs = member(
        "char", SIMDGROUP * SLOT_BYTES, align=64, note="likewise, written by the leader"
    )


@table("am_thread")
class Thread(Structure):
    """One thread."""

    site = member("unsigned", note="where it stands: site number << AM_WAIT_BITS | am_wait")
    lane = member("unsigned", note="thread_index_in_simdgroup")
    position = member("unsigned", 3, note="thread_position_in_threadgroup")
    index = member("unsigned", note="thread_index_in_threadgroup")
    simd = member("am_simdgroup*", note="null in kernels without barriers and collectives")
    group = member("am_group*")


@table("am_log_value")
class LogValue(Structure):
    """One argument of a log message: `count` elements of `size` bytes each, packed in `bits`."""

    kind: int = member("unsigned", note="am_log_kind")
    size: int = member("unsigned short")
    count: int = member("unsigned short", note="1 for a scalar, 2 to 4 for a vector")
    bits = member("unsigned long", 4)


HEADER = Header(
    INCLUDE_DIR / "anymetal" / "layout.h",
    "machine/layout.py",
    constants={
        "AM_SIMD_WIDTH": SIMDGROUP,
        "AM_SLOT_BYTES": SLOT_BYTES,
        "AM_THREADGROUP_ARGUMENTS": THREADGROUP_ARGUMENTS,
        "AM_MAX_THREADS": MAX_GROUP_SIZE,
        "AM_WAIT_BITS": WAIT_BITS,
        "AM_WAIT_MASK": WAIT_MASK,
        "AM_SCOPE_SHIFT": SCOPE_SHIFT,
    },
    enums=(
        Enum.of(Wait, "am_wait"),
        Enum.of(MemoryFlags, "am_memory_flags", "AM_ORDERS_"),
        Enum.of(Described, "am_description_flags"),
        Enum.of(LogKind, "am_log_kind", "AM_LOG_"),
    ),
    structures=(Group, Simdgroup, Thread, LogValue),
)
